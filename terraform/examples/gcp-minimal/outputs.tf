output "costopt" {
  description = "Everything that the module tells."
  value       = module.costopt
}
