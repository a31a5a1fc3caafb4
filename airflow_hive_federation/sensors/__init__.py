"""Provides the Airflow sensors."""
