"""How AGENTs and the ARBITER talk: gRPC, one bidirectional stream per app.

============== ===============================================================================
``messages``   plain values: endpoint, registration, welcome, failure (no gRPC needed)
``handler``    what the server asks of the live arbiter, as a protocol
``server``     the asyncio server, run by the arbiter
``client``     the thread-based client, run by an app's driver, and the calls of the CLI
``convert``    between the core's events and commands and the wire
``auth``       the cluster token and the session secrets
``generate``   writes ``_generated/`` from ``themis.proto``
============== ===============================================================================

Importing this package imports none of them: gRPC is loaded by the modules that need it.
"""
