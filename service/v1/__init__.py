"""Messages and services of the protobuf package espalier.v1, generated from the .proto files beside this module."""
