output "account_document" {
  description = "The account file that the daemon reads, for costopt doctor and costopt plan on another machine."
  value       = local.account_document
}

output "store" {
  description = "Where code, messages and checkpoints lie."
  value       = "s3://${aws_s3_bucket.store.bucket}/${var.store_prefix}"
}

output "bucket" {
  description = "The store's bucket."
  value       = aws_s3_bucket.store.bucket
}

output "queue_url" {
  description = "The queue that EventBridge feeds in this region."
  value       = module.events.queue_url
}

output "daemon_role_arn" {
  description = "The role that the daemon runs with."
  value       = aws_iam_role.daemon.arn
}

output "node_role_arn" {
  description = "The role of the nodes of jobs that were submitted later: it reaches the store but for what the module's jobs keep there."
  value       = aws_iam_role.node[local.node_role].arn
}

output "job_role_arns" {
  description = "The roles that nodes of the module's jobs run with, by job: each reaches its job's part of the store. Let them read data that lie elsewhere."
  value       = { for job, role in local.job_roles : job => aws_iam_role.node[role].arn }
}

output "node_subnets" {
  description = "Subnets for nodes, by zone id."
  value       = local.node_subnets
}

output "vpc_id" {
  description = "The network."
  value       = local.vpc_id
}

output "alarm_topic_arn" {
  description = "The SNS topic of all alarms, to subscribe chats and pagers to."
  value       = aws_sns_topic.alarms.arn
}

output "log_group" {
  description = "The daemon's log."
  value       = aws_cloudwatch_log_group.daemon.name
}

output "environment" {
  description = "The environment that the daemon runs in, without secrets."
  value       = local.environment
}

output "command" {
  description = "The daemon's command."
  value       = local.commands["daemon"]
}

output "database_url" {
  description = "Where ledger and registry are, without the password. Null: files in the state directory."
  value       = local.database_url
}

output "shell" {
  description = "How to talk to the daemon."
  value = !var.remote_commands ? null : local.fargate ? join(" ", [
    "aws ecs execute-command --region ${local.region} --cluster ${var.name} --container daemon --interactive",
    "--task $(aws ecs list-tasks --region ${local.region} --cluster ${var.name} --query 'taskArns[0]' --output text)",
    "--command 'costopt status'",
    ]) : join(" ", [
    "aws ssm start-session --region ${local.region} --target $(aws ec2 describe-instances --region ${local.region}",
    "--filters Name=tag:Name,Values=${var.name}-daemon Name=instance-state-name,Values=running",
    "--query 'Reservations[0].Instances[0].InstanceId' --output text)",
  ])
}
