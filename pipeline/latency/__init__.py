"""The latencies of long runs: percentiles and time lines of raw records."""
