"""The Python client: sync and asyncio, without torch."""
