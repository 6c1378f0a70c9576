# What the variables accept and refuse. Run beside variables.tf alone, no provider is needed.

variables {
  project = "my-project"
  region  = "us-central1"
  image   = "us-central1-docker.pkg.dev/my-project/costopt/costopt:0.1.0"
}

run "defaults" {
  command = plan
}

run "all_that_goes_together" {
  command = plan
  variables {
    mode               = "enforce"
    monthly_budget_usd = 500
    run_on             = "cloud_run"
    database           = "postgres"
    database_password  = "sixteen characters"
    other_regions      = ["europe-west4"]
    jobs               = { a = { document = "name: a" } }
  }
}

run "project_by_its_number" {
  command = plan
  variables { project = "123456789012" }
  expect_failures = [var.project]
}

run "a_zone_for_a_region" {
  command = plan
  variables { region = "us-central1-a" }
  expect_failures = [var.region]
}

run "another_zone_for_a_region" {
  command = plan
  variables { other_regions = ["us-central1-a"] }
  expect_failures = [var.other_regions]
}

run "name_that_no_account_can_have" {
  command = plan
  variables { name = "Training" }
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

run "addresses_that_are_none" {
  command = plan
  variables { subnet_cidrs = { us-central1 = "10.80" } }
  expect_failures = [var.subnet_cidrs]
}

run "unknown_home" {
  command = plan
  variables { run_on = "gke" }
  expect_failures = [var.run_on]
}

run "a_file_where_there_is_no_disk" {
  command = plan
  variables { run_on = "cloud_run" }
  expect_failures = [var.run_on]
}

run "unknown_database" {
  command = plan
  variables { database = "mysql" }
  expect_failures = [var.database]
}

run "postgres_without_a_password" {
  command = plan
  variables { database = "postgres" }
  expect_failures = [var.database_password]
}

run "bucket_with_capitals" {
  command = plan
  variables { bucket_name = "Runs" }
  expect_failures = [var.bucket_name]
}

run "store_where_deployed_jobs_lie" {
  command = plan
  variables { store_prefix = "deployed/x" }
  expect_failures = [var.store_prefix]
}

run "old_versions_that_are_gone_at_once" {
  command = plan
  variables { keep_old_versions_days = 0 }
  expect_failures = [var.keep_old_versions_days]
}

run "job_under_another_name" {
  command = plan
  variables { jobs = { a = { document = "name: b" } } }
  expect_failures = [var.jobs]
}

run "more_jobs_than_accounts" {
  command = plan
  variables { jobs = { for number in range(91) : "j${number}" => { document = "name: j${number}" } } }
  expect_failures = [var.jobs]
}

run "job_of_no_priority" {
  command = plan
  variables { jobs = { a = { document = "name: a", priority = 1001 } } }
  expect_failures = [var.jobs]
}

run "decisions_without_end" {
  command = plan
  variables { tick_s = 0 }
  expect_failures = [var.tick_s]
}

run "alarms_for_nobody" {
  command = plan
  variables { alarm_emails = ["me"] }
  expect_failures = [var.alarm_emails]
}

run "cold_before_it_may" {
  command = plan
  variables { cold_after_days = 7 }
  expect_failures = [var.cold_after_days]
}
