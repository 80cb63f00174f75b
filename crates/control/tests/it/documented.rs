//! What the guide tells people to write is what the real API server takes: nothing in it is unknown or wrong.

use serde_json::Value;
use testkit::Kubernetes;

/// The YAML documents of a page that are objects of Kubernetes, verbatim.
fn objects(page: &str) -> Vec<Value> {
    let mut blocks = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once("```yaml\n") {
        let (block, after) = after.split_once("\n```").expect("the end of a block");
        blocks.push(block);
        rest = after;
    }
    let documents = blocks.into_iter().flat_map(|block| block.split("\n---\n"));
    let read = documents.map(|text| yaml_serde::from_str::<Value>(text).expect(text));
    read.filter(|object| object.get("apiVersion").is_some())
        .collect()
}

#[test]
fn manifests_of_the_guide_are_accepted_by_a_real_server() {
    let cluster = Kubernetes::with_kinds();
    let page = include_str!("../../../../docs/guide/facts.md");
    let objects = objects(page);
    let mut kinds = Vec::new();
    for object in &objects {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap();
        let (api, kind) = (text("/apiVersion"), text("/kind"));
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let body = format!(
            r#"{{"apiVersion": "v1", "kind": "Namespace", "metadata": {{"name": "{namespace}"}}}}"#
        );
        cluster.apply_as(&format!("/api/v1/namespaces/{namespace}"), "docs", &body);
        let singular = kind.to_lowercase();
        let plural = match singular.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None => format!("{singular}s"),
        };
        let path = format!("/apis/{api}/namespaces/{namespace}/{plural}/{name}");
        // A field that no schema knows is an error, too.
        let strictly = "docs&dryRun=All&fieldValidation=Strict";
        cluster.apply_as(&path, strictly, &object.to_string());
        kinds.push(kind);
    }
    let all = [
        "Application",
        "GitRepository",
        "Kustomization",
        "Kustomization",
    ];
    assert_eq!(kinds, all);
}
