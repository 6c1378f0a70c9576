# What EC2 says about nodes in one region, on its way to the daemon.

resource "aws_sqs_queue" "dead" {
  name                      = "${var.name}-events-dead"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true
  tags                      = var.tags
}

resource "aws_sqs_queue" "events" {
  name                       = "${var.name}-events"
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

resource "aws_sqs_queue_policy" "events" {
  for_each = {
    events = aws_sqs_queue.events
    dead   = aws_sqs_queue.dead
  }

  queue_url = each.value.url
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "OurRuleAlone"
        Effect    = "Allow"
        Principal = { Service = "events.amazonaws.com" }
        Action    = "sqs:SendMessage"
        Resource  = each.value.arn
        Condition = { ArnEquals = { "aws:SourceArn" = aws_cloudwatch_event_rule.instances.arn } }
      },
      {
        Sid       = "TlsOnly"
        Effect    = "Deny"
        Principal = "*"
        Action    = "sqs:*"
        Resource  = each.value.arn
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
    ]
  })
}
