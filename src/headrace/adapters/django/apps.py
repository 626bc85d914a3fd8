"""The Django app, which brings the command `headrace_worker`."""

from django.apps import AppConfig


class HeadraceConfig(AppConfig):  # type: ignore[misc]
    name = "headrace.adapters.django"
    label = "headrace"
    verbose_name = "Headrace"
