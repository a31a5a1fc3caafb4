"""Provides the Airflow operators."""
