"""Provides the Airflow hooks."""
