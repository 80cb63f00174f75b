//! A cluster is drained before the engine destroys it: what it made outside of itself goes first.

use serde_json::{Value, json};
use testkit::Kubernetes;

use crate::story::{Story, noted};

const SERVICE: &str = "/api/v1/namespaces/default/services/web";

/// A cluster with a load balancer that somebody must take away, and the stack that made the cluster.
fn story(cluster: &Kubernetes) -> Story {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web",
        "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 443}]}});
    cluster.post("/api/v1/namespaces/default/services", &service.to_string());
    let bootstrap = r#"
  bootstrap "command" {
    run        = ["true"]
    kubeconfig = output.kubeconfig
  }"#;
    let module = format!(
        "{}resource \"terraform_data\" \"last\" {{\n  provisioner \"local-exec\" {{\n    when    = destroy\n    \
         command = \"echo destroyed >> ROOT/made\"\n  }}\n}}\n\
         output \"kubeconfig\" {{\n  sensitive = true\n  value     = <<-EOT\n{}EOT\n}}\n",
        noted("cluster"),
        cluster.kubeconfig(),
    );
    Story::new("tofu").stack("cluster", bootstrap, &module)
}

fn is_being_deleted(cluster: &Kubernetes) -> bool {
    let service: Value = serde_json::from_str(&cluster.get(SERVICE)).unwrap();
    service.pointer("/metadata/deletionTimestamp").is_some()
}

#[test]
fn nothing_is_destroyed_before_its_load_balancers_are_gone() {
    let cluster = Kubernetes::own();
    let story = story(&cluster);
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
    let destroy = story.start("destroy", &["destroy", "--auto-approve"]);
    story.wait_until("the end of the load balancer's service", || {
        is_being_deleted(&cluster)
    });
    story.wait_until("a word about it", || {
        let said = story.cli(&["run", "list"]).expect(0).stdout;
        said.contains("drains its cluster: 1 object left: Service ")
    });
    assert_eq!(story.made(), ["cluster"]);
    cluster.merge(SERVICE, "cloud", r#"{"metadata": {"finalizers": null}}"#);
    drop(destroy.wait().expect(0));
    assert_eq!(story.made(), ["cluster", "destroyed"]);
}

#[test]
fn a_destroy_that_is_interrupted_while_it_drains_destroyed_nothing() {
    let cluster = Kubernetes::own();
    let story = story(&cluster);
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
    let destroy = story.start("destroy", &["destroy", "--auto-approve"]);
    story.wait_until("the end of the load balancer's service", || {
        is_being_deleted(&cluster)
    });
    // The runner dies: the engine was not at work yet, so the next one begins where the cluster stands.
    testkit::kill(story.runner("r2"));
    let said = destroy.wait();
    assert_eq!(story.made(), ["cluster"], "{said}");
    cluster.merge(SERVICE, "cloud", r#"{"metadata": {"finalizers": null}}"#);
    drop(story.cli(&["destroy", "--auto-approve"]).expect(0));
    assert_eq!(story.made(), ["cluster", "destroyed"]);
}

/// Nothing was applied then, and nothing destroyed.
#[test]
fn what_failed_while_draining_says_so() {
    let block = "bootstrap \"command\" {\n    run        = [\"true\"]\n    kubeconfig = output.kubeconfig\n  }";
    let story = Story::new("tofu").stack(
        "cluster",
        block,
        "output \"kubeconfig\" {\n  value = \"none: [\"\n}\n\
             resource \"terraform_data\" \"two\" {\n  count = 2\n}\n",
    );
    drop(story.cli(&["apply", "--auto-approve"]));
    let said = story
        .cli(&["destroy", "--auto-approve"])
        .expect(1)
        .to_string();
    assert!(
        said.contains("✗ cluster   failed while draining its cluster, after"),
        "{said}"
    );
}
