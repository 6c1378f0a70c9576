"""The daemon over HTTP: FastAPI routes, request and response models, and rights."""
