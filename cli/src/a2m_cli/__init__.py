"""a2m: run a federation on embedded engines and talk to any A2M server."""
