//! Plans as they are seen, whole.

mod values;

use std::collections::BTreeMap;

use model::plan::{AttributeChange, ChangeAction, Mode, OutputChange, PlanValue};
use serde_json::{Value, json};

use super::*;
use crate::view::color_tags::tagged;
use crate::view::diagnostics::DiagnosticSource;

fn known(value: Value) -> PlanValue {
    PlanValue::Known(value)
}

fn attribute(path: &str, before: PlanValue, after: PlanValue) -> AttributeChange {
    AttributeChange {
        path: path.to_owned(),
        before,
        after,
        forces_replacement: false,
    }
}

fn set_to(path: &str, value: Value) -> AttributeChange {
    attribute(path, PlanValue::Absent, known(value))
}

fn resource(
    action: ChangeAction,
    address: &str,
    attributes: Vec<AttributeChange>,
) -> ResourceChange {
    let parts: Vec<&str> = address.split('.').collect();
    let module = if parts.len() > 2 {
        parts[..parts.len() - 2].join(".")
    } else {
        String::new()
    };
    ResourceChange {
        address: address.to_owned(),
        module,
        resource_type: parts[parts.len() - 2].to_owned(),
        mode: Mode::Managed,
        action,
        moved_from: None,
        importing: None,
        replace_because: Vec::new(),
        reason: None,
        attributes,
        unchanged: 0,
    }
}

fn plan(changes: Vec<ResourceChange>) -> Plan {
    Plan {
        changes,
        ..Plan::default()
    }
}

fn stack(name: &str, status: StackStatus) -> StackPlan {
    StackPlan {
        stack: name.to_owned(),
        status,
        is_deferred: false,
        remark: None,
    }
}

fn alone(change: ResourceChange) -> PlanSet {
    let stacks = vec![stack("network", StackStatus::Planned(plan(vec![change])))];
    PlanSet {
        in_force: Vec::new(),
        facts: Vec::new(),
        heading: String::new(),
        policy: Vec::new(),
        stacks,
    }
}

/// One resource, 80 columns wide.
fn seen(change: ResourceChange) -> String {
    render(&alone(change), false, ViewOptions::plain(80))
}

fn change_set() -> PlanSet {
    let subnet = resource(
        ChangeAction::Update,
        "azurerm_subnet.nodes",
        vec![attribute(
            "address_prefixes[0]",
            known(json!("10.0.0.0/24")),
            known(json!("10.0.0.0/23")),
        )],
    );
    let mut cluster = resource(
        ChangeAction::DeleteCreate,
        "module.cluster.azurerm_kubernetes_cluster.this",
        vec![
            attribute(
                "default_node_pool.vnet_subnet_id",
                known(json!("/subscriptions/1/nodes")),
                PlanValue::Unknown,
            ),
            attribute(
                "kube_admin_config",
                PlanValue::Sensitive,
                PlanValue::Sensitive,
            ),
        ],
    );
    cluster.replace_because = vec!["default_node_pool.vnet_subnet_id".to_owned()];
    cluster.unchanged = 41;
    let mut prod = stack("k8s-prod", StackStatus::Planned(plan(vec![cluster])));
    prod.remark = Some("deferred: `subnet_id` is known after `network`".to_owned());
    PlanSet {
        in_force: Vec::new(),
        facts: Vec::new(),
        heading: "change set c42 on `azure`, source 3f9c1e2 (clean)".to_owned(),
        policy: Vec::new(),
        stacks: vec![
            stack("network", StackStatus::Planned(plan(vec![subnet]))),
            prod,
            stack("k8s-dev", StackStatus::NoChanges),
            stack("dns", StackStatus::Untouched),
        ],
    }
}

#[test]
fn a_change_set() {
    insta::assert_snapshot!(render(&change_set(), false, ViewOptions::plain(110)), @r#"
    change set c42 on `azure`, source 3f9c1e2 (clean)

    network   ~ 1 change
      ~ azurerm_subnet.nodes
          address_prefixes[0]   "10.0.0.0/24" → "10.0.0.0/23"

    k8s-prod  -/+ 1 replace                      deferred: `subnet_id` is known after `network`
      -/+ module.cluster.azurerm_kubernetes_cluster.this
          replaced, because `default_node_pool.vnet_subnet_id` changes
          default_node_pool.vnet_subnet_id   "/subscriptions/1/nodes" → (known after apply)
          kube_admin_config                  (sensitive)
          … 41 unchanged

    k8s-dev   no changes
    dns       untouched: nothing it consumes changes

    Plan: 0 to add, 1 to change, 1 to replace, 0 to destroy, in 2 of 4 stacks.
    "#);
}

#[test]
fn a_change_set_in_ascii_and_narrow() {
    insta::assert_snapshot!(render(&change_set(), false, ViewOptions::ascii(60)), @r#"
    change set c42 on `azure`, source 3f9c1e2 (clean)

    network   ~ 1 change
      ~ azurerm_subnet.nodes
          address_prefixes[0]   "10.0.0.0/24" -> "10.0.0.0/23"

    k8s-prod  -/+ 1 replace
      deferred: `subnet_id` is known after `network`
      -/+ module.cluster.azurerm_kubernetes_cluster.this
          replaced, because `default_node_pool.vnet_subnet_id`
          changes
          default_node_pool.vnet_subnet_id   "/subscriptions/1/nodes"
                                             -> (known after apply)
          kube_admin_config                  (sensitive)
          ... 41 unchanged

    k8s-dev   no changes
    dns       untouched: nothing it consumes changes

    Plan: 0 to add, 1 to change, 1 to replace, 0 to destroy,
    in 2 of 4 stacks.
    "#);
}

#[test]
fn nothing_is_wider_than_a_narrow_terminal() {
    let stacks = ["cluster", "database", "dns"].map(|name| name.parse().unwrap());
    let later = PlanValue::KnownAfter {
        stacks: stacks.to_vec(),
    };
    let mut subnet = attribute(
        "subnet_id",
        known(json!("/subscriptions/1/nodes")),
        known(json!("/subscriptions/2/nodes")),
    );
    subnet.forces_replacement = true;
    let change = resource(
        ChangeAction::DeleteCreate,
        "terraform_data.deployment",
        vec![
            attribute("config", PlanValue::Absent, later.clone()),
            attribute("name", known(json!("platform-web")), later),
            subnet,
        ],
    );
    let mut change = change;
    change.replace_because = ["a", "b", "c", "d", "subnet_id"]
        .map(str::to_owned)
        .to_vec();
    let mut set = alone(change);
    set.stacks.push(stack("dns", StackStatus::NoChanges));
    for width in [40, 50, 59] {
        let seen = render(&set, false, ViewOptions::plain(width));
        for line in seen.lines() {
            assert!(text::width(line) <= width, "{width}: {line}");
        }
    }
    insta::assert_snapshot!(render(&set, false, ViewOptions::plain(50)), @r#"
    network  -/+ 1 replace
      -/+ terraform_data.deployment
          replaced, because 5 attributes change
          + config
              (known after `cluster`, `database` and
              `dns`)
            name
              "platform-web" → (known after 3 stacks)
            subnet_id
              "/subscriptions/1/nodes"
              → "/subscriptions/2/nodes"
              forces replacement

    dns      no changes

    Plan: 0 to add, 0 to change, 1 to replace,
    0 to destroy, in 1 of 2 stacks.
    "#);
}

#[test]
fn a_change_set_in_colour() {
    let look = ViewOptions {
        color: true,
        ..ViewOptions::plain(110)
    };
    insta::assert_snapshot!(tagged(&render(&change_set(), false, look)), @r#"
    change set c42 on `azure`, source 3f9c1e2 (clean)

    <bold>network </>  <yellow>~</> 1 change
      <yellow>~</> <yellow>azurerm_subnet.nodes</>
          address_prefixes[0]   <red>"10.0.0.0/24"</> <faint>→</> <green>"10.0.0.0/23"</>

    <bold>k8s-prod</>  <magenta>-/+</> 1 replace                      <faint>deferred: `subnet_id` is known after `network`</>
      <magenta>-/+</> <magenta>module.cluster.azurerm_kubernetes_cluster.this</>
          replaced, because `default_node_pool.vnet_subnet_id` changes
          default_node_pool.vnet_subnet_id   <red>"/subscriptions/1/nodes"</> <faint>→</> <green>(known after apply)</>
          kube_admin_config                  <faint>(sensitive)</>
          <faint>… 41 unchanged</>

    <bold>k8s-dev </>  <faint>no changes</>
    <bold>dns     </>  <faint>untouched: nothing it consumes changes</>

    Plan: 0 to add, 1 to change, 1 to replace, 0 to destroy, in 2 of 4 stacks.
    "#);
}

#[test]
fn a_plan_in_a_few_words() {
    let look = ViewOptions {
        color: true,
        ..ViewOptions::plain(80)
    };
    let change = resource(ChangeAction::Update, "aws_lb.web", Vec::new());
    assert_eq!(brief(&plan(vec![change]), look), "~ 1 change");
    assert_eq!(brief(&Plan::default(), look), "no changes");
}

#[test]
fn every_mark_grouped_by_module() {
    let mut moved = resource(ChangeAction::NoOp, "module.net.random_pet.b", Vec::new());
    moved.moved_from = Some("random_pet.a".to_owned());
    let mut imported = resource(ChangeAction::NoOp, "aws_eip.gateway", Vec::new());
    imported.importing = Some("eipalloc-1".to_owned());
    let mut imported_later = resource(
        ChangeAction::Update,
        "aws_eip.nat",
        vec![set_to("tags.env", json!("prod"))],
    );
    imported_later.importing = Some(String::new());
    imported_later.unchanged = 3;
    let mut deleted = resource(
        ChangeAction::Delete,
        "module.net.aws_vpc.old",
        vec![set_to("id", json!("vpc-1"))],
    );
    deleted.reason = Some("delete_because_no_resource_config".to_owned());
    let mut tainted = resource(
        ChangeAction::DeleteCreate,
        "module.net.aws_instance.x",
        Vec::new(),
    );
    tainted.reason = Some("replace_because_tainted".to_owned());
    let mut requested = resource(ChangeAction::CreateDelete, "aws_instance.y", Vec::new());
    requested.reason = Some("replace_by_request".to_owned());
    let forgotten = resource(ChangeAction::Forget, "aws_s3_bucket.logs", Vec::new());
    let created = resource(
        ChangeAction::Create,
        "module.net.aws_vpc.new",
        vec![set_to("cidr", json!("10.0.0.0/8"))],
    );
    let changes = vec![
        moved,
        imported,
        imported_later,
        deleted,
        tainted,
        requested,
        forgotten,
        created,
    ];
    let set = PlanSet {
        in_force: Vec::new(),
        facts: Vec::new(),
        heading: String::new(),
        policy: Vec::new(),
        stacks: vec![stack("network", StackStatus::Planned(plan(changes)))],
    };
    insta::assert_snapshot!(render(&set, false, ViewOptions::plain(100)), @r#"
    network  + 1 add, -/+ 2 replace, ~ 1 change, - 1 destroy, ← 2 import, → 1 move, ⌫ 1 forget
      ← aws_eip.gateway   imported as `eipalloc-1`
      ~ aws_eip.nat   imported, by an id that is known later
          + tags.env   "prod"
          … 3 unchanged
      +/- aws_instance.y   replaced, the new one first, as requested
      ⌫ aws_s3_bucket.logs   leaves the state, is not destroyed
      module.net
        → random_pet.b   moved from `random_pet.a`
        - aws_vpc.old   no longer in the configuration
        -/+ aws_instance.x   replaced, because it is tainted
        + aws_vpc.new
            cidr   "10.0.0.0/8"

    Plan: 1 to add, 1 to change, 2 to replace, 1 to destroy, 2 to import, 1 to move, 1 to forget.
    "#);
    insta::assert_snapshot!(render(&set, false, ViewOptions::ascii(100)), @r#"
    network  + 1 add, -/+ 2 replace, ~ 1 change, - 1 destroy, <- 2 import, -> 1 move, x 1 forget
      <- aws_eip.gateway   imported as `eipalloc-1`
      ~ aws_eip.nat   imported, by an id that is known later
          + tags.env   "prod"
          ... 3 unchanged
      +/- aws_instance.y   replaced, the new one first, as requested
      x aws_s3_bucket.logs   leaves the state, is not destroyed
      module.net
        -> random_pet.b   moved from `random_pet.a`
        - aws_vpc.old   no longer in the configuration
        -/+ aws_instance.x   replaced, because it is tainted
        + aws_vpc.new
            cidr   "10.0.0.0/8"

    Plan: 1 to add, 1 to change, 2 to replace, 1 to destroy, 2 to import, 1 to move, 1 to forget.
    "#);
}

#[test]
fn outputs_and_drift() {
    let output = |action, before, after| OutputChange {
        action,
        before,
        after,
    };
    let changed = Plan {
        outputs: BTreeMap::from([
            (
                "url".to_owned(),
                output(
                    ChangeAction::Create,
                    PlanValue::Absent,
                    known(json!("https://a.example.io")),
                ),
            ),
            (
                "old".to_owned(),
                output(
                    ChangeAction::Delete,
                    known(json!([1, 2])),
                    PlanValue::Absent,
                ),
            ),
            (
                "nodes".to_owned(),
                output(ChangeAction::Update, known(json!(3)), known(json!(5))),
            ),
            (
                "kube_config".to_owned(),
                output(
                    ChangeAction::Update,
                    PlanValue::Sensitive,
                    PlanValue::Unknown,
                ),
            ),
        ]),
        ..Plan::default()
    };
    let drifted = Plan {
        drift: vec![
            resource(
                ChangeAction::Update,
                "aws_vpc.main",
                vec![attribute(
                    "tags.env",
                    known(json!("prod")),
                    known(json!("test")),
                )],
            ),
            resource(ChangeAction::Delete, "aws_eip.nat", Vec::new()),
        ],
        ..Plan::default()
    };
    let stopped = Plan {
        errored: true,
        ..plan(vec![resource(
            ChangeAction::Create,
            "null_resource.a",
            Vec::new(),
        )])
    };
    let set = PlanSet {
        in_force: Vec::new(),
        facts: Vec::new(),
        heading: String::new(),
        policy: Vec::new(),
        stacks: vec![
            stack("app", StackStatus::Planned(changed)),
            stack("base", StackStatus::Planned(drifted)),
            stack("other", StackStatus::Planned(stopped)),
        ],
    };
    insta::assert_snapshot!(render(&set, false, ViewOptions::plain(80)), @r#"
    app    ~ 4 outputs
      outputs
        ~ kube_config   (sensitive) → (known after apply)
        ~ nodes         3 → 5
        - old           [1, 2]
        + url           "https://a.example.io"

    base   no changes
      changed outside of terrane
        ~ aws_vpc.main
            tags.env   "prod" → "test"
        - aws_eip.nat

    other  + 1 add
      + null_resource.a
      incomplete: the engine stopped before this plan was complete; it cannot be applied

    Plan: 1 to add, 0 to change, 0 to replace, 0 to destroy, in 2 of 3 stacks.
    "#);
}

#[test]
fn stacks_that_could_not_be_planned() {
    let broken = StackStatus::Failed {
        stage: "planning".to_owned(),
        is_interrupted: false,
        lines: vec!["`tofu plan` ended with 1".to_owned()],
        diagnostics: vec![DiagnosticView {
            summary: "Invalid reference".to_owned(),
            detail: "A managed resource \"a\" \"b\" has not been declared in the root module."
                .to_owned(),
            source: Some(DiagnosticSource {
                file: "infra/network/main.tf".to_owned(),
                line: 7,
                code: Some("  value = a.b.id".to_owned()),
            }),
            ..DiagnosticView::default()
        }],
    };
    let stopped = StackStatus::Failed {
        stage: "applying".to_owned(),
        is_interrupted: true,
        lines: vec!["cancelled by ada".to_owned()],
        diagnostics: Vec::new(),
    };
    let reason = "`for_each` of `aws_eip.nat` is known after `base`".to_owned();
    let set = PlanSet {
        in_force: Vec::new(),
        facts: Vec::new(),
        heading: String::new(),
        policy: Vec::new(),
        stacks: vec![
            stack("network", broken),
            stack("dns", StackStatus::Deferred { reason }),
            stack("disk", stopped),
        ],
    };
    insta::assert_snapshot!(render(&set, false, ViewOptions::plain(80)), @r#"
    network  failed while planning
        `tofu plan` ended with 1
        Error: Invalid reference
          on infra/network/main.tf line 7
             7 │   value = a.b.id
          A managed resource "a" "b" has not been declared in the root module.

    dns      deferred, no preview: `for_each` of `aws_eip.nat` is known after `base`

    disk     interrupted while applying
        cancelled by ada

    Plan: no changes so far; 1 failed, 1 interrupted, 1 without a preview.
    "#);
}

#[test]
fn nothing_to_do() {
    let set = PlanSet {
        in_force: Vec::new(),
        facts: Vec::new(),
        heading: String::new(),
        policy: Vec::new(),
        stacks: vec![stack("network", StackStatus::NoChanges)],
    };
    insta::assert_snapshot!(render(&set, false, ViewOptions::plain(80)), @"
    network  no changes

    No changes: everything matches the configuration.
    ");
}

fn big() -> ResourceChange {
    let mut attributes: Vec<AttributeChange> = (0..20)
        .map(|n| set_to(&format!("option_{n}"), json!(n)))
        .collect();
    attributes.push(set_to("unset", json!(null)));
    attributes.extend(
        (0..12).map(|n| attribute(&format!("later_{n}"), PlanValue::Absent, PlanValue::Unknown)),
    );
    resource(ChangeAction::Create, "aws_instance.big", attributes)
}

#[test]
fn a_new_resource_is_folded() {
    insta::assert_snapshot!(seen(big()), @"
    network  + 1 add
      + aws_instance.big
          option_0   0
          option_1   1
          option_2   2
          option_3   3
          option_4   4
          option_5   5
          option_6   6
          option_7   7
          option_8   8
          option_9   9
          … 10 more, `--full` shows all
          known after apply: later_0, later_1, later_2, later_3, later_4, later_5,
          later_6, later_7, later_8, later_9 and 2 more

    Plan: 1 to add, 0 to change, 0 to replace, 0 to destroy.
    ");
}

#[test]
fn a_new_resource_in_full() {
    let full = render(&alone(big()), true, ViewOptions::plain(80));
    assert!(
        full.contains("option_19") && full.contains("later_11"),
        "{full}"
    );
    assert!(!full.contains("more"), "{full}");
}
