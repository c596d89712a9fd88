"""Load tests with locust: users who put, delete, search, page and follow at the same time."""
