# What EC2 says about nodes in one region, on its way to the daemon.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  names = { events = "${var.name}-events", dead = "${var.name}-events-dead" }
  place = "${data.aws_region.current.name}:${data.aws_caller_identity.current.account_id}"

  # A queue has its policy from the beginning: there is no time in which the rule may not fill it.
  policies = {
    for queue, name in local.names : queue => jsonencode({
      Version = "2012-10-17"
      Statement = [
        {
          Sid       = "OurRuleAlone"
          Effect    = "Allow"
          Principal = { Service = "events.amazonaws.com" }
          Action    = "sqs:SendMessage"
          Resource  = "arn:${data.aws_partition.current.partition}:sqs:${local.place}:${name}"
          Condition = { ArnEquals = { "aws:SourceArn" = aws_cloudwatch_event_rule.instances.arn } }
        },
        {
          Sid       = "TlsOnly"
          Effect    = "Deny"
          Principal = "*"
          Action    = "sqs:*"
          Resource  = "arn:${data.aws_partition.current.partition}:sqs:${local.place}:${name}"
          Condition = { Bool = { "aws:SecureTransport" = "false" } }
        },
      ]
    })
  }
}

resource "aws_sqs_queue" "dead" {
  name                      = local.names.dead
  policy                    = local.policies.dead
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true
  tags                      = var.tags
}

resource "aws_sqs_queue" "events" {
  name                       = local.names.events
  policy                     = local.policies.events
  message_retention_seconds  = 3600
  visibility_timeout_seconds = 120
  receive_wait_time_seconds  = 0
  sqs_managed_sse_enabled    = true
  tags                       = var.tags

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead.arn
    maxReceiveCount     = 20
  })
}

resource "aws_cloudwatch_event_rule" "instances" {
  name        = "${var.name}-instances"
  description = "Interruption warnings, rebalance recommendations and ends of EC2 instances"
  tags        = var.tags

  event_pattern = jsonencode({
    source = ["aws.ec2"]
    detail-type = [
      "EC2 Spot Instance Interruption Warning",
      "EC2 Instance Rebalance Recommendation",
      "EC2 Instance State-change Notification",
    ]
  })
}

resource "aws_cloudwatch_event_target" "queue" {
  rule      = aws_cloudwatch_event_rule.instances.name
  target_id = "queue"
  arn       = aws_sqs_queue.events.arn

  dead_letter_config {
    arn = aws_sqs_queue.dead.arn
  }
}
