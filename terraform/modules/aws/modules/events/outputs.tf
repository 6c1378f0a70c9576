output "queue_url" {
  description = "For the option queues of the account file, under this region."
  value       = aws_sqs_queue.events.url

  # A daemon that reads the queue before it is filled would hear nothing and say nothing.
  depends_on = [aws_cloudwatch_event_target.queue]
}

output "queue_arn" {
  description = "The queue's ARN."
  value       = aws_sqs_queue.events.arn
}

output "dead_letter_queue_name" {
  description = "Where messages go that could not be delivered or read."
  value       = aws_sqs_queue.dead.name
}

output "rule_arn" {
  description = "The EventBridge rule's ARN."
  value       = aws_cloudwatch_event_rule.instances.arn
}
