"""Tests on real servers: airflow."""
