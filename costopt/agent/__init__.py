"""The process on a training node: follows the gang, runs the trainer, watches for interruption
notices and sends heartbeats. It does not import torch.
"""
