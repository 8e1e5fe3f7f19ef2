"""The command line. Invariant: `service.cli.main` imports no torch; each command's module is imported when it runs."""
