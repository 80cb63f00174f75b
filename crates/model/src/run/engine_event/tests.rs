//! Streams recorded from real engines, and incomplete or unusual streams.

use super::*;

macro_rules! recorded {
    ($engine:literal, $story:literal) => {
        &include_bytes!(concat!(
            "../../../fixtures/events/",
            $engine,
            ".",
            $story,
            ".jsonl"
        ))[..]
    };
}

macro_rules! of_each_engine {
    ($story:literal) => {
        [
            recorded!("tofu-1.11.14", $story),
            recorded!("terraform-1.11.4", $story),
            recorded!("terraform-1.15.5", $story),
        ]
    };
}

/// One line per event with its important fields. Resource events are sorted by address, since engines walk their graphs
/// in any order.
fn outline(stream: &[u8]) -> String {
    let mut lines: Vec<String> = EventReader::read_all(stream).iter().map(sketch).collect();
    lines.sort();
    lines.join("\n")
}

fn sketch(event: &EngineEvent) -> String {
    use EventKind as E;
    let address = event.address().unwrap_or_default();
    match &event.kind {
        E::Version(version) => format!("version {}", version.version),
        E::Log => "log".to_owned(),
        E::Hook(name) => format!("hook {name}"),
        E::Text => format!("text {}", event.message),
        E::Other(kind) => format!("other {kind}"),
        E::Diagnostic(it) => format!("{:?} {}: {}", it.severity, it.summary, it.detail),
        E::PlannedChange(it) => format!("plan {} {address}", it.action),
        E::ResourceDrift(it) => format!("drift {} {address}", it.action),
        E::ChangeSummary(it) => {
            format!("{} +{} ~{} -{}", it.operation, it.add, it.change, it.remove)
        }
        E::Outputs(outputs) => outputs
            .iter()
            .map(|(name, it)| format!("output {name} {:?} {}", it.action, it.sensitive))
            .collect::<Vec<_>>()
            .join("\n"),
        E::RefreshStart(_) => format!("refresh {address}"),
        E::RefreshComplete(_) => format!("refreshed {address}"),
        E::ApplyStart(it) => format!("apply {:?} {address}", it.action),
        E::ApplyProgress(_) => format!("applying {address}"),
        E::ApplyComplete(it) => format!("applied {address} by its {:?}", it.id_key),
        E::ApplyErrored(_) => format!("errored {address}"),
        E::ProvisionStart(it) => format!("provision {:?} {address}", it.provisioner),
        E::ProvisionProgress(it) => format!("provisioning {:?} {address}", it.output),
        E::ProvisionComplete(_) => format!("provisioned {address}"),
        E::ProvisionErrored(_) => format!("not provisioned {address}"),
    }
}

#[test]
fn a_plan_reads_the_same_from_every_engine() {
    let [tofu, terraform, newer] = of_each_engine!("change").map(outline);
    let unversioned = |text: &str, version: &str| text.replace(version, "X");
    assert_eq!(
        unversioned(&terraform, "1.11.4"),
        unversioned(&newer, "1.15.5")
    );
    insta::assert_snapshot!(tofu, @r#"
    Warning Resource going to be removed from the state: After this plan gets applied, the resource terraform_data.forgotten will not be managed anymore by OpenTofu.

    In case you want to manage the resource again, you will have to import it.
    output added Some("create") false
    output dropped Some("delete") false
    output id Some("update") false
    output name Some("update") false
    output password Some("update") true
    plan +3 ~1 -4
    plan create module.network.module.subnet["c"].terraform_data.subnet
    plan delete module.network.module.subnet["b"].terraform_data.subnet
    plan delete terraform_data.deleted
    plan import terraform_data.imported
    plan move terraform_data.new_name
    plan remove terraform_data.forgotten
    plan replace terraform_data.before
    plan replace terraform_data.replaced
    plan update terraform_data.server
    refresh module.network.module.subnet["a"].terraform_data.subnet
    refresh module.network.module.subnet["b"].terraform_data.subnet
    refresh terraform_data.before
    refresh terraform_data.deleted
    refresh terraform_data.forgotten
    refresh terraform_data.imported
    refresh terraform_data.new_name
    refresh terraform_data.replaced
    refresh terraform_data.same
    refresh terraform_data.server
    refreshed module.network.module.subnet["a"].terraform_data.subnet
    refreshed module.network.module.subnet["b"].terraform_data.subnet
    refreshed terraform_data.before
    refreshed terraform_data.deleted
    refreshed terraform_data.forgotten
    refreshed terraform_data.imported
    refreshed terraform_data.new_name
    refreshed terraform_data.replaced
    refreshed terraform_data.same
    refreshed terraform_data.server
    version 1.11.14
    "#);
}

#[test]
fn an_apply_reads_the_same_from_every_engine() {
    let [tofu, terraform, newer] = of_each_engine!("apply").map(outline);
    assert_eq!(
        tofu.replace("1.11.14", "X"),
        terraform.replace("1.11.4", "X")
    );
    assert_eq!(tofu.replace("1.11.14", "X"), newer.replace("1.15.5", "X"));
    insta::assert_snapshot!(tofu, @r#"
    applied module.network.module.subnet["a"].terraform_data.subnet by its Some("id")
    applied module.network.module.subnet["b"].terraform_data.subnet by its Some("id")
    applied terraform_data.before by its Some("id")
    applied terraform_data.deleted by its Some("id")
    applied terraform_data.forgotten by its Some("id")
    applied terraform_data.old_name by its Some("id")
    applied terraform_data.replaced by its Some("id")
    applied terraform_data.same by its Some("id")
    applied terraform_data.server by its Some("id")
    apply +9 ~0 -0
    apply Some("create") module.network.module.subnet["a"].terraform_data.subnet
    apply Some("create") module.network.module.subnet["b"].terraform_data.subnet
    apply Some("create") terraform_data.before
    apply Some("create") terraform_data.deleted
    apply Some("create") terraform_data.forgotten
    apply Some("create") terraform_data.old_name
    apply Some("create") terraform_data.replaced
    apply Some("create") terraform_data.same
    apply Some("create") terraform_data.server
    output dropped None false
    output id None false
    output name None false
    output password None true
    plan create module.network.module.subnet["a"].terraform_data.subnet
    plan create module.network.module.subnet["b"].terraform_data.subnet
    plan create terraform_data.before
    plan create terraform_data.deleted
    plan create terraform_data.forgotten
    plan create terraform_data.old_name
    plan create terraform_data.replaced
    plan create terraform_data.same
    plan create terraform_data.server
    version 1.11.14
    "#);
}

#[test]
fn init_is_only_messages() {
    let kinds = of_each_engine!("init").map(outline).join("\n\n");
    insta::assert_snapshot!(kinds, @r"
    log
    log
    log
    log
    log
    log
    log
    log
    version 1.11.14

    log
    log
    log
    log
    log
    log
    log
    version 1.11.4

    log
    log
    log
    log
    log
    log
    log
    version 1.15.5
    ");
}

#[test]
fn an_error_says_where() {
    for stream in of_each_engine!("error") {
        let events = EventReader::read_all(stream);
        let found: Vec<_> = events
            .iter()
            .filter_map(EngineEvent::as_diagnostic)
            .collect();
        insta::allow_duplicates! {
            insta::assert_json_snapshot!(found, @r#"
            [
              {
                "severity": "error",
                "summary": "Reference to undeclared input variable",
                "detail": "An input variable with the name \"missing\" has not been declared. This variable can be declared with a variable \"missing\" {} block.",
                "address": null,
                "range": {
                  "filename": "main.tf",
                  "start": {
                    "line": 2,
                    "column": 11,
                    "byte": 47
                  },
                  "end": {
                    "line": 2,
                    "column": 22,
                    "byte": 58
                  }
                },
                "snippet": {
                  "context": "resource \"terraform_data\" \"server\"",
                  "code": "  input = var.missing",
                  "start_line": 2,
                  "highlight_start_offset": 10,
                  "highlight_end_offset": 21
                }
              }
            ]
            "#);
        }
    }
}

#[test]
fn nothing_changes_only_when_nothing_does() {
    for stream in of_each_engine!("noop") {
        let events = EventReader::read_all(stream);
        assert!(nothing_changes(&events, Some(0), false));
        assert!(!nothing_changes(&events, Some(2), false));
        assert!(!nothing_changes(&events, None, false));
        let torn = EventReader::read_all(&stream[..stream.len() / 2]);
        assert!(
            !nothing_changes(&torn, Some(0), false),
            "without a summary it did not end"
        );
    }
    for stream in of_each_engine!("change")
        .into_iter()
        .chain(of_each_engine!("plan"))
    {
        assert!(!nothing_changes(
            &EventReader::read_all(stream),
            Some(0),
            false
        ));
    }
    assert!(!nothing_changes(&[], Some(0), false));
}

#[test]
fn portions_of_any_size_give_the_same_events() {
    let stream = recorded!("tofu-1.11.14", "apply");
    let whole = EventReader::read_all(stream);
    for size in [1, 7, 100, 4096] {
        let mut reader = EventReader::new();
        let mut events: Vec<_> = stream
            .chunks(size)
            .flat_map(|part| reader.push(part))
            .collect();
        events.extend(reader.finish());
        assert_eq!(events, whole, "portions of {size}");
    }
}

#[track_caller]
fn check(stream: &str, expected: &str) {
    let events = EventReader::read_all(stream.as_bytes());
    assert_eq!(
        events.iter().map(sketch).collect::<Vec<_>>().join("; "),
        expected
    );
}

#[test]
fn what_is_not_an_event_is_kept() {
    check(
        "panic: oh no\r\n\n{\"@message\":\"x\",\"type\":\"new_thing\"}\n",
        "text panic: oh no; other new_thing",
    );
    check("{\"@message\":\"torn", "text {\"@message\":\"torn");
    check(
        "{\"type\":\"planned_change\",\"change\":7}\n",
        "other planned_change",
    );
    check("[1]\n3\nnull\n", "text [1]; text 3; text null");
    check("{\"@level\":\"loud\",\"@message\":\"x\"}\n", "log");
}

proptest::proptest! {
    /// The events do not depend on how the input is split.
    #[test]
    fn any_bytes_in_any_portions(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400),
        size in 1_usize..50,
    ) {
        let mut reader = EventReader::new();
        let mut events: Vec<_> = bytes.chunks(size).flat_map(|part| reader.push(part)).collect();
        events.extend(reader.finish());
        proptest::prop_assert_eq!(events, EventReader::read_all(&bytes));
    }
}

/// OpenTofu exits with 0 although resources drifted.
#[test]
fn drift_is_a_change_only_where_nothing_else_is_looked_for() {
    let stream = concat!(
        r#"{"@level":"info","@message":"drift","type":"resource_drift","change":{"resource":{"addr":"a.b"},"action":"update"}}"#,
        "\n",
        r#"{"@level":"info","@message":"Plan: 0 to add","type":"change_summary","changes":{"add":0,"change":0,"import":0,"remove":0,"operation":"plan"}}"#,
        "\n",
    );
    let events = EventReader::read_all(stream.as_bytes());
    assert!(nothing_changes(&events, Some(0), false));
    assert!(!nothing_changes(&events, Some(0), true));
}
