"""gRPC, protobuf, text, processes and the command line: everything between a caller and the engine.

Invariant: only this package imports grpc or protobuf, and `service.client` imports neither torch nor the engine.
"""
