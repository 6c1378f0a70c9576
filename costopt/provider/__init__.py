"""The kit that makes a provider adapter small: checked options, faults kept to their provider."""
