# Who hears when something is wrong.

resource "google_monitoring_notification_channel" "email" {
  for_each = toset(var.alarm_emails)

  project      = var.project
  display_name = "${var.name} ${each.value}"
  type         = "email"
  labels       = { email_address = each.value }

  depends_on = [google_project_service.needed]
}

resource "google_monitoring_alert_policy" "silent" {
  project               = var.project
  display_name          = "${var.name}: the daemon is gone"
  combiner              = "OR"
  notification_channels = [for channel in google_monitoring_notification_channel.email : channel.id]
  user_labels           = local.labels

  conditions {
    display_name = "No time on a processor"

    condition_absent {
      duration = "600s"
      filter = local.vm ? join(" AND ", [
        "resource.type = \"gce_instance\"",
        "metric.type = \"compute.googleapis.com/instance/uptime\"",
        "metric.labels.instance_name = \"${var.name}-daemon\"",
        ]) : join(" AND ", [
        "resource.type = \"cloud_run_revision\"",
        "resource.labels.service_name = \"${var.name}-daemon\"",
        "metric.type = \"run.googleapis.com/container/instance_count\"",
      ])

      aggregations {
        alignment_period   = "60s"
        per_series_aligner = "ALIGN_MEAN"
      }
    }
  }

  documentation {
    content = "Nodes keep running, and nobody steers them. Look at the daemon's log."
  }

  depends_on = [google_project_service.needed]
}
