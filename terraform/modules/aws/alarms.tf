# Who hears when something is wrong.

locals {
  namespace = "costopt/${var.name}"

  # By name: the pattern of a log line, and what it counts for.
  log_metrics = {
    TickAge      = { pattern = "{ $.costopt_tick_age_s = * }", value = "$.costopt_tick_age_s" }
    Orphans      = { pattern = "{ $.costopt_orphans = * }", value = "$.costopt_orphans" }
    Nodes        = { pattern = "{ $.costopt_nodes = * }", value = "$.costopt_nodes" }
    UsdPerHour   = { pattern = "{ $.costopt_usd_per_hour = * }", value = "$.costopt_usd_per_hour" }
    BudgetAlerts = { pattern = "{ $.costopt_alert = \"budget\" }", value = "1" }
  }

  tick_stopped_s = max(10 * var.tick_s, 600)

  alarms = {
    tick-stopped = {
      metric  = "TickAge"
      about   = "The daemon has not decided anything for ${local.tick_stopped_s} s: nodes keep running, and nobody steers them"
      above   = local.tick_stopped_s
      periods = 2
      missing = "breaching"
    }
    orphans = {
      metric  = "Orphans"
      about   = "Something carries the owner tag and is on no ledger: see costopt reconcile"
      above   = 0
      periods = 3
      missing = "ignore"
    }
    budget = {
      metric  = "BudgetAlerts"
      about   = "A guard has stopped a job's launches"
      above   = 0
      periods = 1
      missing = "notBreaching"
    }
  }
}

resource "aws_sns_topic" "alarms" {
  #checkov:skip=CKV_AWS_26:alarms cannot publish to a topic under the key of AWS, and tell no secrets
  name = "${var.name}-alarms"
  tags = local.tags
}

resource "aws_sns_topic_subscription" "email" {
  for_each = toset(var.alarm_emails)

  topic_arn = aws_sns_topic.alarms.arn
  protocol  = "email"
  endpoint  = each.value
}

resource "aws_cloudwatch_log_metric_filter" "daemon" {
  for_each = local.log_metrics

  name           = "${var.name}-${each.key}"
  log_group_name = aws_cloudwatch_log_group.daemon.name
  pattern        = each.value.pattern

  metric_transformation {
    name      = each.key
    namespace = local.namespace
    value     = each.value.value
  }
}

resource "aws_cloudwatch_metric_alarm" "daemon" {
  for_each = local.alarms

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.about
  namespace           = local.namespace
  metric_name         = aws_cloudwatch_log_metric_filter.daemon[each.value.metric].metric_transformation[0].name
  statistic           = "Maximum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = each.value.above
  period              = 300
  evaluation_periods  = each.value.periods
  treat_missing_data  = each.value.missing
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
  tags                = local.tags
}

resource "aws_cloudwatch_metric_alarm" "lost_messages" {
  alarm_name          = "${var.name}-lost-messages"
  alarm_description   = "Notices of EC2 could not be delivered or read"
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateNumberOfMessagesVisible"
  dimensions          = { QueueName = module.events.dead_letter_queue_name }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  period              = 300
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  tags                = local.tags
}

resource "aws_budgets_budget" "monthly" {
  count = var.aws_budget ? 1 : 0

  name         = var.name
  budget_type  = "COST"
  limit_amount = tostring(var.monthly_budget_usd)
  limit_unit   = "USD"
  time_unit    = "MONTHLY"
  tags         = local.tags

  cost_filter {
    name   = "TagKeyValue"
    values = ["user:costopt:owner$${local.owner}"]
  }

  dynamic "notification" {
    for_each = { ACTUAL = 80, FORECASTED = 100 }

    content {
      notification_type          = notification.key
      threshold                  = notification.value
      threshold_type             = "PERCENTAGE"
      comparison_operator        = "GREATER_THAN"
      subscriber_email_addresses = var.alarm_emails
    }
  }
}
