# The same documents that `costopt doctor aws --iam-policy` prints; a test holds them together.

locals {
  store_objects = "${aws_s3_bucket.store.arn}/${var.store_prefix}/"

  find_bucket = {
    Sid      = "FindBucket"
    Effect   = "Allow"
    Action   = ["s3:GetBucketLocation", "s3:GetBucketVersioning"]
    Resource = [aws_s3_bucket.store.arn]
  }

  object_actions = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]

  store_statements = [
    local.find_bucket,
    {
      Sid       = "ListStore"
      Effect    = "Allow"
      Action    = ["s3:ListBucket"]
      Resource  = [aws_s3_bucket.store.arn]
      Condition = { StringLike = { "s3:prefix" = [var.store_prefix, "${var.store_prefix}/*"] } }
    },
    {
      Sid      = "UseStore"
      Effect   = "Allow"
      Action   = local.object_actions
      Resource = ["${local.store_objects}*"]
    },
  ]

  # What nodes read beside the store, by job, and for all others, "". Six random characters end the
  # ARN of a secret.
  job_secrets = {
    for name, job in var.jobs : name => distinct([
      for secret in try(values(yamldecode(job.document).secrets), []) : secret.aws if try(secret.aws, null) != null
    ])
  }
  node_reads = {
    for job, names in merge({ "" = var.node_secrets }, local.job_secrets) : job => concat(
      [
        for arns in length(names) > 0 ? [[
          for name in names : startswith(name, "arn:") ? name : "${local.arn}:secretsmanager:*:*:secret:${name}-??????"
          ]] : [] : {
          Sid      = "ReadSecrets"
          Effect   = "Allow"
          Action   = ["secretsmanager:GetSecretValue"]
          Resource = sort(arns)
        }
      ],
      [
        for repositories in length(var.node_repositories) > 0 ? [var.node_repositories] : [] : {
          Sid      = "LogInToRegistry"
          Effect   = "Allow"
          Action   = ["ecr:GetAuthorizationToken"]
          Resource = ["*"]
        }
      ],
      [
        for repositories in length(var.node_repositories) > 0 ? [var.node_repositories] : [] : {
          Sid      = "PullImages"
          Effect   = "Allow"
          Action   = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
          Resource = [for name in sort(repositories) : "${local.arn}:ecr:*:*:repository/${name}"]
        }
      ],
    )
  }

  node_policy = {
    Version = "2012-10-17"
    Statement = concat(
      local.store_statements,
      [
        {
          Sid      = "KeepPayloads"
          Effect   = "Deny"
          Action   = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:PutObject"]
          Resource = ["${local.store_objects}payloads/*"]
        },
      ],
      [
        for closed in length(var.jobs) > 0 ? [keys(var.jobs)] : [] : {
          Sid    = "KeepApart"
          Effect = "Deny"
          Action = local.object_actions
          Resource = flatten([
            for job in closed : [for folder in ["checkpoints", "jobs", "payloads"] : "${local.store_objects}${folder}/${job}/*"]
          ])
        }
      ],
      local.node_reads[""],
    )
  }

  # Of the jobs that come with the module: their letters, states and code, and no other job's.
  job_folders = {
    for job in keys(var.jobs) : job => [
      for folder in ["checkpoints", "jobs"] : "${var.store_prefix}/${folder}/${job}"
    ]
  }

  job_policies = {
    for job, folders in local.job_folders : job => {
      Version = "2012-10-17"
      Statement = concat([
        local.find_bucket,
        {
          Sid       = "ListStore"
          Effect    = "Allow"
          Action    = ["s3:ListBucket"]
          Resource  = [aws_s3_bucket.store.arn]
          Condition = { StringLike = { "s3:prefix" = [for folder in folders : "${folder}/*"] } }
        },
        {
          Sid      = "UseStore"
          Effect   = "Allow"
          Action   = local.object_actions
          Resource = [for folder in folders : "${aws_s3_bucket.store.arn}/${folder}/*"]
        },
        {
          Sid      = "FetchCode"
          Effect   = "Allow"
          Action   = ["s3:GetObject"]
          Resource = ["${local.store_objects}payloads/${job}/*"]
        },
      ], local.node_reads[job])
    }
  }

  made_by_launches = ["instance", "network-interface", "volume"]
  made_for_jobs    = ["launch-template", "placement-group"]

  # What launches use that has no tag of ours: what the account file names, and where it names
  # nothing of a region, what EC2 takes of itself.
  used_in_launches = concat(
    [for kind in ["capacity-reservation", "spot-instances-request"] : "${local.arn}:ec2:*:*:${kind}/*"],
    flatten([
      for region in sort(local.node_regions) : concat(
        [
          for group in sort(lookup(local.node_security_groups, region, ["*"])) :
          "${local.arn}:ec2:${region}:*:security-group/${group}"
        ],
        [
          for subnet in sort(length(local.node_subnets_of[region]) > 0 ? values(local.node_subnets_of[region]) : ["*"]) :
          "${local.arn}:ec2:${region}:*:subnet/${subnet}"
        ],
      )
    ]),
    [for region, id in var.node_image_ids : "${local.arn}:ec2:${region}::image/${id}"],
  )

  # The default is the adapter's.
  node_image = coalesce(
    var.node_image,
    "/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-2.7-ubuntu-22.04/latest/ami-id",
  )
  node_image_is_public = startswith(local.node_image, "/aws/service/")
  node_image_parameters = length(var.node_image_ids) > 0 ? [] : [
    startswith(local.node_image, "arn:") ? local.node_image : format(
      "%s:ssm:*:%s:parameter/%s",
      local.arn,
      local.node_image_is_public ? "" : "*",
      trimprefix(split(":", local.node_image)[0], "/"),
    )
  ]

  # A queue's URL ends in its account and its name.
  queue_arns = [
    for region, url in local.queues :
    "${local.arn}:sqs:${region}:${join(":", slice(split("/", url), 3, 5))}"
  ]

  daemon_policy = {
    Version = "2012-10-17"
    Statement = concat(
      [
        {
          Sid    = "Look"
          Effect = "Allow"
          Action = [
            "ce:GetCostAndUsage",
            "ec2:DescribeAvailabilityZones",
            "ec2:DescribeCapacityReservations",
            "ec2:DescribeImages",
            "ec2:DescribeInstanceTypeOfferings",
            "ec2:DescribeInstanceTypes",
            "ec2:DescribeInstances",
            "ec2:DescribeLaunchTemplates",
            "ec2:DescribePlacementGroups",
            "ec2:DescribeRegions",
            "ec2:DescribeSpotPriceHistory",
            "ec2:DescribeVolumes",
            "ec2:GetSpotPlacementScores",
            "pricing:GetProducts",
            "servicequotas:ListServiceQuotas",
            "sts:DecodeAuthorizationMessage",
          ]
          Resource = ["*"]
        },
      ],
      [
        for parameters in length(local.node_image_parameters) > 0 ? [local.node_image_parameters] : [] : {
          Sid      = "FindImage"
          Effect   = "Allow"
          Action   = ["ssm:GetParameter"]
          Resource = parameters
        }
      ],
      [
        {
          Sid       = "LaunchOurs"
          Effect    = "Allow"
          Action    = ["ec2:RunInstances"]
          Resource  = [for kind in local.made_by_launches : "${local.arn}:ec2:*:*:${kind}/*"]
          Condition = { StringEquals = { "aws:RequestTag/costopt:owner" = local.owner } }
        },
        {
          Sid       = "LaunchFromOurs"
          Effect    = "Allow"
          Action    = ["ec2:RunInstances"]
          Resource  = [for kind in local.made_for_jobs : "${local.arn}:ec2:*:*:${kind}/*"]
          Condition = { StringEquals = { "aws:ResourceTag/costopt:owner" = local.owner } }
        },
        {
          Sid      = "LaunchWith"
          Effect   = "Allow"
          Action   = ["ec2:RunInstances"]
          Resource = local.used_in_launches
        },
      ],
      [
        for _ in local.node_image_parameters : {
          Sid      = "LaunchImage"
          Effect   = "Allow"
          Action   = ["ec2:RunInstances"]
          Resource = ["${local.arn}:ec2:*::image/*"]
          Condition = {
            StringEquals = {
              "ec2:Owner" = concat(["amazon"], local.node_image_is_public ? [] : ["$${aws:PrincipalAccount}"])
            }
          }
        }
      ],
      [
        {
          Sid       = "MakeOurs"
          Effect    = "Allow"
          Action    = ["ec2:CreateLaunchTemplate", "ec2:CreatePlacementGroup"]
          Resource  = [for kind in local.made_for_jobs : "${local.arn}:ec2:*:*:${kind}/*"]
          Condition = { StringEquals = { "aws:RequestTag/costopt:owner" = local.owner } }
        },
        {
          Sid      = "TagOnCreate"
          Effect   = "Allow"
          Action   = ["ec2:CreateTags"]
          Resource = [for kind in concat(local.made_by_launches, local.made_for_jobs) : "${local.arn}:ec2:*:*:${kind}/*"]
          Condition = {
            StringEquals = {
              "ec2:CreateAction" = ["RunInstances", "CreateLaunchTemplate", "CreatePlacementGroup"]
            }
          }
        },
        {
          Sid    = "EndOurs"
          Effect = "Allow"
          Action = [
            "ec2:DeleteLaunchTemplate",
            "ec2:DeletePlacementGroup",
            "ec2:DeleteVolume",
            "ec2:TerminateInstances",
          ]
          Resource = [
            for kind in concat(["instance", "volume"], local.made_for_jobs) :
            "${local.arn}:ec2:*:*:${kind}/*"
          ]
          Condition = { StringEquals = { "aws:ResourceTag/costopt:owner" = local.owner } }
        },
        {
          Sid       = "GiveNodesTheirRole"
          Effect    = "Allow"
          Action    = ["iam:PassRole"]
          Resource  = [for role in keys(local.node_policies) : "${local.arn}:iam::*:role/${role}"]
          Condition = { StringEquals = { "iam:PassedToService" = "ec2.amazonaws.com" } }
        },
        {
          Sid       = "UseSpot"
          Effect    = "Allow"
          Action    = ["iam:CreateServiceLinkedRole"]
          Resource  = ["*"]
          Condition = { StringEquals = { "iam:AWSServiceName" = "spot.amazonaws.com" } }
        },
        {
          Sid      = "HearOfInterruptions"
          Effect   = "Allow"
          Action   = ["sqs:DeleteMessage", "sqs:ReceiveMessage"]
          Resource = local.queue_arns
        },
      ],
      local.store_statements,
    )
  }
}
