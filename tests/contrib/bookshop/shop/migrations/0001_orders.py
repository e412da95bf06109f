"""The table of orders."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """Make it."""

    initial = True
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, auto_created=True, verbose_name="ID"
                    ),
                ),
                ("title", models.TextField()),
                ("printed", models.IntegerField(default=0)),
            ],
        )
    ]
