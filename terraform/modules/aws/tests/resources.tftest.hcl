# What follows from the variables, with a mocked provider. No cloud is asked.

mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }

  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }

  mock_data "aws_region" {
    defaults = { name = "us-east-1" }
  }

  mock_data "aws_availability_zones" {
    defaults = { names = ["us-east-1a", "us-east-1b", "us-east-1c"] }
  }

  mock_resource "aws_s3_bucket" {
    defaults = { arn = "arn:aws:s3:::costopt-123456789012-us-east-1" }
  }

  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/costopt-daemon" }
  }

  mock_resource "aws_sqs_queue" {
    defaults = {
      arn = "arn:aws:sqs:us-east-1:123456789012:costopt-events"
      url = "https://sqs.us-east-1.amazonaws.com/123456789012/costopt-events"
    }
  }

  mock_resource "aws_cloudwatch_event_rule" {
    defaults = { arn = "arn:aws:events:us-east-1:123456789012:rule/costopt-instances" }
  }

  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:us-east-1:123456789012:log-group:/costopt/costopt" }
  }

  mock_resource "aws_efs_file_system" {
    defaults = { arn = "arn:aws:elasticfilesystem:us-east-1:123456789012:file-system/fs-1" }
  }

  mock_resource "aws_sns_topic" {
    defaults = { arn = "arn:aws:sns:us-east-1:123456789012:costopt-alarms" }
  }

  mock_resource "aws_launch_template" {
    defaults = { id = "lt-0123456789abcdef0", latest_version = 1 }
  }

  mock_resource "aws_db_instance" {
    defaults = {
      address            = "state.example.internal"
      port               = 5432
      master_user_secret = [{ secret_arn = "arn:aws:secretsmanager:us-east-1:123456789012:secret:s" }]
    }
  }
}

variables {
  image                     = "costopt:0.1.0"
  refuse_destroy_with_nodes = false
}

run "defaults" {
  assert {
    condition     = contains(output.command, "observe")
    error_message = "the daemon is to observe unless it is told otherwise"
  }

  assert {
    condition     = !can(jsondecode(output.account_document).guards)
    error_message = "without a budget the daemon's own guards count"
  }

  assert {
    condition     = length(aws_subnet.private) == 3 && length(aws_efs_mount_target.state) == 2
    error_message = "nodes in every zone, the daemon in two"
  }

  assert {
    condition     = aws_ecs_service.daemon[0].deployment_maximum_percent == 100
    error_message = "two daemons must never share a file on EFS"
  }

  assert {
    condition = [
      for container in jsondecode(aws_ecs_task_definition.daemon[0].container_definitions) :
      length(container.mountPoints) if container.readonlyRootFilesystem
    ] == [5, 2]
    error_message = "remote commands need folders to write to in the daemon's container, and in no other"
  }

  assert {
    condition     = !strcontains(aws_iam_role_policy.start[0].policy, "ecr:")
    error_message = "what is not in Amazon ECR needs no permission there"
  }
}

run "options_that_go_together" {
  variables {
    image              = "210987654321.dkr.ecr.eu-west-1.amazonaws.com/team/costopt:0.1.0"
    node_image         = "/ours/image"
    remote_commands    = false
    mode               = "enforce"
    monthly_budget_usd = 500
    cold_after_days    = 60
    other_regions      = { us-west-2 = { queue_url = "https://sqs.us-west-2.amazonaws.com/1/costopt-events" } }
    jobs = {
      a = { document = "name: a" }
      b = { document = "name: b" }
    }
  }

  assert {
    condition = [
      for statement in jsondecode(aws_iam_role_policy.start[0].policy).Statement :
      statement.Resource if statement.Sid == "PullImage"
    ] == [["arn:aws:ecr:eu-west-1:210987654321:repository/team/costopt"]]
    error_message = "the image's repository may be pulled from, and no other"
  }

  assert {
    condition = [
      for statement in jsondecode(aws_iam_role_policy.daemon.policy).Statement :
      statement.Resource if statement.Sid == "FindImage"
    ] == [["arn:aws:ssm:*:*:parameter/ours/image"]]
    error_message = "the parameter that names the image may be read, and no other"
  }

  assert {
    condition = [
      for statement in jsondecode(aws_iam_role_policy.daemon.policy).Statement :
      statement.Condition.StringEquals["ec2:Owner"] if statement.Sid == "LaunchImage"
    ] == [["amazon", "$${aws:PrincipalAccount}"]]
    error_message = "images of the account and of Amazon may be launched"
  }

  assert {
    condition     = length(aws_ecs_task_definition.daemon[0].volume) == 2 && output.shell == null
    error_message = "nobody gets in, and nothing is made for it"
  }

  assert {
    condition     = jsondecode(output.account_document).guards.max_usd_per_month == 500
    error_message = "the budget must reach the daemon"
  }

  assert {
    condition     = jsondecode(output.account_document).guards.max_nodes == 64
    error_message = "a budget must not take the other guards away"
  }

  assert {
    condition     = jsondecode(output.account_document).providers.aws.regions == ["us-east-1", "us-west-2"]
    error_message = "both regions are to be rented in"
  }

  assert {
    condition     = length(jsondecode(output.account_document).providers.aws.queues) == 2
    error_message = "both queues are to be heard"
  }

  assert {
    condition     = toset(keys(aws_iam_role.node)) == toset(["costopt-node", "costopt-node-a", "costopt-node-b"])
    error_message = "a role for each job, and one for jobs that are handed in later"
  }

  assert {
    condition     = !strcontains(aws_iam_role_policy.node["costopt-node-a"].policy, "/b/*")
    error_message = "a job's nodes must not reach another job"
  }

  assert {
    condition     = strcontains(aws_iam_role_policy.node["costopt-node"].policy, "/jobs/b/*")
    error_message = "what these jobs keep must be closed to jobs that are handed in later"
  }

  assert {
    condition     = toset(keys(jsondecode(output.account_document).providers.aws.job_profiles)) == toset(["a", "b"])
    error_message = "the daemon must know them"
  }

  assert {
    condition = anytrue([
      for rule in aws_s3_bucket_lifecycle_configuration.store.rule :
      anytrue([for step in rule.transition : step.days == 60 && step.storage_class == "STANDARD_IA"])
    ])
    error_message = "Kept checkpoints stay in the standard class."
  }
}

run "on_ec2_with_postgres" {
  variables {
    run_on   = "ec2"
    database = "postgres"
  }

  assert {
    condition     = length(aws_ecs_service.daemon) == 0 && length(aws_autoscaling_group.daemon) == 1
    error_message = "the daemon runs in one place"
  }

  assert {
    condition     = output.database_url == "postgresql://costopt@state.example.internal:5432/costopt?sslmode=require"
    error_message = "the daemon must find its database, and no password may be in the address"
  }

  assert {
    condition     = can(regex("^costopt-state-[0-9a-f-]{36}$", aws_db_instance.state[0].final_snapshot_identifier))
    error_message = "a last snapshot must not be in the way of the next deployment's"
  }

  assert {
    condition     = aws_autoscaling_group.daemon[0].max_size == 1
    error_message = "one daemon"
  }
}

run "in_a_network_that_is_there" {
  variables {
    vpc = {
      id                      = "vpc-1"
      subnet_ids              = ["subnet-1"]
      node_subnets            = { use1-az1 = "subnet-1" }
      node_security_group_ids = ["sg-1"]
    }
  }

  assert {
    condition     = length(aws_vpc.this) == 0 && length(aws_nat_gateway.this) == 0
    error_message = "nothing may be added to it"
  }

  assert {
    condition     = jsondecode(output.account_document).providers.aws.subnets == { use1-az1 = "subnet-1" }
    error_message = "nodes belong into the subnets that were named"
  }
}
