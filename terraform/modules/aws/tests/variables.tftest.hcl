# What the variables accept and refuse. Run beside variables.tf alone, no provider is needed.

variables {
  image                     = "costopt:0.1.0"
  refuse_destroy_with_nodes = false
}

run "queue_that_is_none" {
  command = plan
  variables {
    other_regions = { us-west-2 = { queue_url = "costopt-events" } }
  }
  expect_failures = [var.other_regions]
}

run "job_with_a_long_name" {
  command = plan
  variables {
    jobs = { a-very-long-name-for-a-job-that-trains-for-a-very-long-time = { document = "name: a-very-long-name-for-a-job-that-trains-for-a-very-long-time" } }
  }
  expect_failures = [var.jobs]
}

run "more_jobs_than_policies_can_name" {
  command = plan
  variables { jobs = { for number in range(18) : "j${number}" => { document = "name: j${number}" } } }
  expect_failures = [var.jobs]
}

run "name_of_another" {
  command = plan
  variables { name = "training" }
  expect_failures = [var.name]
}

run "owner_with_a_space" {
  command = plan
  variables { owner = "my team" }
  expect_failures = [var.owner]
}

run "image_that_changes" {
  command = plan
  variables { image = "costopt:latest" }
  expect_failures = [var.image]
}

run "unknown_mode" {
  command = plan
  variables { mode = "yolo" }
  expect_failures = [var.mode]
}

run "enforce_without_a_budget" {
  command = plan
  variables { mode = "enforce" }
  expect_failures = [var.mode]
}

run "no_budget_at_all" {
  command = plan
  variables { monthly_budget_usd = 0 }
  expect_failures = [var.monthly_budget_usd]
}

run "guards_of_nothing" {
  command = plan
  variables { guards = { max_nodes = 0 } }
  expect_failures = [var.guards]
}

run "images_that_are_none" {
  command = plan
  variables { node_image_ids = { us-east-1 = "ubuntu" } }
  expect_failures = [var.node_image_ids]
}

run "a_zone_for_a_region" {
  command = plan
  variables { other_regions = { us-west-2a = {} } }
  expect_failures = [var.other_regions]
}

run "small_network" {
  command = plan
  variables { vpc_cidr = "10.0.0.0/24" }
  expect_failures = [var.vpc_cidr]
}

run "one_zone" {
  command = plan
  variables { max_zones = 1 }
  expect_failures = [var.max_zones]
}

run "unknown_home" {
  command = plan
  variables { run_on = "lambda" }
  expect_failures = [var.run_on]
}

run "memory_that_fargate_has_not" {
  command = plan
  variables { memory_mib = 512 }
  expect_failures = [var.memory_mib]
}

run "unknown_database" {
  command = plan
  variables { database = "mysql" }
  expect_failures = [var.database]
}

run "store_where_deployed_jobs_lie" {
  command = plan
  variables { store_prefix = "deployed/x" }
  expect_failures = [var.store_prefix]
}

run "job_under_another_name" {
  command = plan
  variables { jobs = { a = { document = "name: b" } } }
  expect_failures = [var.jobs]
}

run "environment_of_the_module" {
  command = plan
  variables { environment = { COSTOPT_STATE_DIR = "/tmp" } }
  expect_failures = [var.environment]
}

run "budget_for_nobody" {
  command = plan
  variables {
    aws_budget         = true
    monthly_budget_usd = 100
  }
  expect_failures = [var.aws_budget]
}

run "owner_tag_on_everything" {
  command = plan
  variables { tags = { "costopt:owner" = "costopt" } }
  expect_failures = [var.tags]
}

run "cold_before_it_may" {
  command = plan
  variables { cold_after_days = 7 }
  expect_failures = [var.cold_after_days]
}
