# The daemon as one task of an ECS service.

locals {
  daemon_alone = {
    secrets = [
      for secret in local.database_secret_arn == null ? [] : [local.database_secret_arn] :
      { name = "PGPASSWORD", valueFrom = "${secret}:password::" }
    ]
    healthCheck = {
      command     = concat(["CMD"], local.health_command)
      interval    = 30
      timeout     = 10
      retries     = 5
      startPeriod = 120
    }
  }

  # What ECS Exec starts in the container writes here, and the root file system is read-only
  # (github.com/aws/containers-roadmap/issues/1359).
  agent_folders = !var.remote_commands ? {} : {
    agents      = "/managed-agents"
    agent-state = "/var/lib/amazon/ssm"
    agent-log   = "/var/log/amazon/ssm"
  }

  others_alone = {
    dependsOn = [{ containerName = "daemon", condition = "HEALTHY" }]
  }

  containers = [
    for name, command in local.commands : merge(
      {
        name                   = name
        image                  = var.image
        essential              = name == "daemon"
        entryPoint             = slice(command, 0, 1)
        command                = slice(command, 1, length(command))
        environment            = [for key, value in local.environment : { name = key, value = value }]
        readonlyRootFilesystem = true
        user                   = tostring(local.user_id)
        linuxParameters        = { initProcessEnabled = true }
        # SIGTERM finishes the tick; a call to AWS may take this long.
        stopTimeout = 120
        mountPoints = concat(
          [
            { sourceVolume = "run", containerPath = local.run_dir, readOnly = false },
            { sourceVolume = "state", containerPath = local.state_dir, readOnly = false },
          ],
          [
            for volume, path in local.agent_folders :
            { sourceVolume = volume, containerPath = path, readOnly = false } if name == "daemon"
          ],
        )
        logConfiguration = {
          logDriver = "awslogs"
          options = {
            awslogs-group         = aws_cloudwatch_log_group.daemon.name
            awslogs-region        = local.region
            awslogs-stream-prefix = "costopt"
          }
        }
      },
      { for key, value in local.daemon_alone : key => value if name == "daemon" },
      { for key, value in local.others_alone : key => value if name != "daemon" },
    )
  ]
}

resource "aws_ecs_cluster" "this" {
  count = local.fargate ? 1 : 0

  name = var.name
  tags = local.tags

  setting {
    name  = "containerInsights"
    value = "enabled"
  }
}

resource "aws_ecs_task_definition" "daemon" {
  count = local.fargate ? 1 : 0

  family                   = var.name
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = var.cpu
  memory                   = var.memory_mib
  task_role_arn            = aws_iam_role.daemon.arn
  execution_role_arn       = aws_iam_role.start[0].arn
  container_definitions    = jsonencode(local.containers)
  tags                     = local.tags

  runtime_platform {
    cpu_architecture        = "X86_64"
    operating_system_family = "LINUX"
  }

  volume {
    name = "run"
  }

  dynamic "volume" {
    for_each = local.agent_folders

    content {
      name = volume.key
    }
  }

  volume {
    name = "state"

    dynamic "efs_volume_configuration" {
      for_each = aws_efs_access_point.state

      content {
        file_system_id     = efs_volume_configuration.value.file_system_id
        transit_encryption = "ENABLED"

        authorization_config {
          access_point_id = efs_volume_configuration.value.id
          iam             = "ENABLED"
        }
      }
    }
  }
}

resource "aws_ecs_service" "daemon" {
  count = local.fargate ? 1 : 0

  name                   = "daemon"
  cluster                = aws_ecs_cluster.this[0].id
  task_definition        = aws_ecs_task_definition.daemon[0].arn
  desired_count          = 1
  launch_type            = "FARGATE"
  enable_execute_command = var.remote_commands
  propagate_tags         = "SERVICE"
  tags                   = local.tags

  # The old one ends before the new one starts: a file on EFS has one writer.
  deployment_minimum_healthy_percent = 0
  deployment_maximum_percent         = 100

  network_configuration {
    subnets          = local.daemon_subnet_ids
    security_groups  = [aws_security_group.daemon.id]
    assign_public_ip = false
  }

  depends_on = [
    aws_efs_mount_target.state,
    aws_iam_role_policy.daemon,
    aws_iam_role_policy.deployment,
    aws_iam_role_policy.start,
    aws_route.private,
    aws_s3_object.job,
    aws_s3_object.job_file,
    aws_vpc_security_group_egress_rule.daemon,
    aws_vpc_security_group_ingress_rule.state,
  ]
}
