"""The working tier: live transcripts on Redis or Valkey."""
