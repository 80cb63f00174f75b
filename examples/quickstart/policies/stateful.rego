# Protects stacks that store data: a plan that would lose data is reported before it is applied.
package terrane

# A replacement is a new, empty resource under the old name.
warn contains {"msg": msg, "resource": change.address} if {
	some change in input.plan.resource_changes
	replaced(change)
	msg := sprintf("%s is replaced: what it keeps is gone", [change.address])
}

# An edit must not delete a resource. To delete it on purpose, use `terrane destroy`.
deny contains {"msg": msg, "resource": change.address} if {
	not input.run.destroy
	some change in input.plan.resource_changes
	change.change.actions == ["delete"]
	msg := sprintf("%s is deleted, and nobody asked for a destroy", [change.address])
}

replaced(change) if {
	"delete" in change.change.actions
	"create" in change.change.actions
}
