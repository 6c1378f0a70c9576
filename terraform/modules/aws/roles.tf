# Nodes run the job's code, the daemon steers, and the task's start needs neither's power.

locals {
  role_of_daemon_for = local.fargate ? "ecs-tasks.amazonaws.com" : "ec2.amazonaws.com"

  job_roles = { for job in keys(var.jobs) : job => "${local.node_role}-${job}" }

  # By role. Jobs that are handed in later share one.
  node_policies = merge(
    { (local.node_role) = local.node_policy },
    { for job, role in local.job_roles : role => local.job_policies[job] },
  )
}

resource "aws_iam_role" "node" {
  for_each = local.node_policies

  name        = each.key
  description = "Training nodes: their part of the store and nothing else"
  tags        = local.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect    = "Allow"
        Principal = { Service = "ec2.amazonaws.com" }
        Action    = "sts:AssumeRole"
      },
    ]
  })
}

resource "aws_iam_role_policy" "node" {
  for_each = local.node_policies

  name   = "store"
  role   = aws_iam_role.node[each.key].id
  policy = jsonencode(each.value)
}

resource "aws_iam_instance_profile" "node" {
  for_each = local.node_policies

  name = each.key
  role = aws_iam_role.node[each.key].name
  tags = local.tags
}

resource "aws_iam_role" "daemon" {
  name        = local.daemon_role
  description = "The costopt daemon: starts and ends what carries its owner tag"
  tags        = local.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      merge(
        {
          Effect    = "Allow"
          Principal = { Service = local.role_of_daemon_for }
          Action    = "sts:AssumeRole"
        },
        # EC2 gives no source when it hands a role to an instance.
        local.fargate ? { Condition = { StringEquals = { "aws:SourceAccount" = local.account_id } } } : {},
      ),
    ]
  })
}

# 6144 characters may be attached, 10240 embedded.
resource "aws_iam_role_policy" "daemon" {
  name   = "costopt"
  role   = aws_iam_role.daemon.id
  policy = jsonencode(local.daemon_policy)
}

# What this way of running it needs besides.
resource "aws_iam_role_policy" "deployment" {
  name = "deployment"
  role = aws_iam_role.daemon.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [
        {
          Sid      = "ReadDeployedJobs"
          Effect   = "Allow"
          Action   = ["s3:GetObject"]
          Resource = ["${aws_s3_bucket.store.arn}/${local.deployed}/*"]
        },
        {
          Sid       = "ListDeployedJobs"
          Effect    = "Allow"
          Action    = ["s3:ListBucket"]
          Resource  = [aws_s3_bucket.store.arn]
          Condition = { StringLike = { "s3:prefix" = ["${local.deployed}/*"] } }
        },
      ],
      [
        for files in aws_efs_file_system.state : {
          Sid      = "KeepState"
          Effect   = "Allow"
          Action   = ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"]
          Resource = [files.arn]
        }
      ],
      [
        for actions in [["ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel", "ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel"]] : {
          Sid      = "RemoteCommands"
          Effect   = "Allow"
          Action   = concat(actions, local.fargate ? [] : ["ssm:UpdateInstanceInformation"])
          Resource = ["*"]
        } if var.remote_commands
      ],
      local.fargate ? [] : local.start_statements,
    )
  })
}

locals {
  # Account, region and name, where the image is in Amazon ECR, of whatever account; else none.
  image_repositories = regexall("^([0-9]{12})\\.dkr\\.ecr\\.([a-z0-9-]+)\\.amazonaws\\.com(?:\\.cn)?/([^:@]+)", var.image)

  database_secret_arn = one(aws_db_instance.state[*].master_user_secret) == null ? null : try(
    aws_db_instance.state[0].master_user_secret[0].secret_arn, null,
  )

  start_statements = concat(
    [
      {
        Sid      = "WriteLog"
        Effect   = "Allow"
        Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
        Resource = ["${aws_cloudwatch_log_group.daemon.arn}:*"]
      },
    ],
    # It has no resource: a token opens nothing that the role may not pull.
    [
      for _ in local.image_repositories : {
        Sid      = "FindRegistry"
        Effect   = "Allow"
        Action   = ["ecr:GetAuthorizationToken"]
        Resource = ["*"]
      }
    ],
    [
      for repository in local.image_repositories : {
        Sid      = "PullImage"
        Effect   = "Allow"
        Action   = ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
        Resource = ["${local.arn}:ecr:${repository[1]}:${repository[0]}:repository/${repository[2]}"]
      }
    ],
    [
      for secret in local.database_secret_arn == null ? [] : [local.database_secret_arn] : {
        Sid      = "ReadDatabasePassword"
        Effect   = "Allow"
        Action   = ["secretsmanager:GetSecretValue"]
        Resource = [secret]
      }
    ],
  )
}

resource "aws_iam_role" "start" {
  count = local.fargate ? 1 : 0

  name        = "${var.name}-start"
  description = "ECS, when it starts the daemon: image, log and password"
  tags        = local.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect    = "Allow"
        Principal = { Service = "ecs-tasks.amazonaws.com" }
        Action    = "sts:AssumeRole"
        Condition = { StringEquals = { "aws:SourceAccount" = local.account_id } }
      },
    ]
  })
}

resource "aws_iam_role_policy" "start" {
  count = local.fargate ? 1 : 0

  name   = "start"
  role   = aws_iam_role.start[0].id
  policy = jsonencode({ Version = "2012-10-17", Statement = local.start_statements })
}

resource "aws_iam_instance_profile" "daemon" {
  count = local.fargate ? 0 : 1

  name = local.daemon_role
  role = aws_iam_role.daemon.name
  tags = local.tags
}
