"""An index as a service: its flow, its view, and its HTTP application."""
