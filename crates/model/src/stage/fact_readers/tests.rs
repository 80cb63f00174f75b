//! How files read facts: each case is a text and the lines found.

use super::*;

fn whole<'a>(path: &'a [String], parts: &'a [Vec<String>]) -> Fact<'a> {
    Fact::Field { path, parts }
}

#[test]
fn a_published_file_is_read_where_its_path_is_written() {
    let text = "valueFiles:\n  - $facts/prod/globals.yaml\n  - prod/globals.yaml.bak\n  - other-prod/globals.yaml\n  # prod/globals.yaml\n  - \"prod/globals.yaml\"\n";
    let found = readers_in(
        "app.yaml",
        text,
        &Syntax::Any,
        Fact::File("prod/globals.yaml"),
    );
    let lines: Vec<usize> = found.iter().map(|one| one.line).collect();
    assert_eq!(lines, [2, 6]);
}

#[test]
fn readers_are_found_by_file_and_line() {
    let template = "\
kind: Gateway
spec:
  addresses:
    - value: {{ .Values.azure.envoyPublicIpAddress }}
    # was {{ .Values.azure.envoyPublicIpAddress }}
    - value: {{ index .Values \"azure\" \"envoyPublicIpAddress\" | quote }}
    - value: {{ .Values.azure.envoyPublicIpAddressV6 }}
{{ toYaml .Values.azure | indent 4 }}
{{ $.Values.global.azure.envoyPublicIpAddress }}
";
    let values = "\
azure:
  location: westeurope
  envoyPublicIpAddress: 20.1.2.3
aws:
  envoyPublicIpAddress: 1.2.3.4
child:
  azure:
    envoyPublicIpAddress: \"\"
azure.envoyPublicIpAddress: flat
";
    let other = "\
parameters:
  - name: azure.envoyPublicIpAddress
  - name: azure.envoyPublicIpAddress-old
  value: '{{azure.envoyPublicIpAddress}}'
  substituted: ${azure_envoyPublicIpAddress:=none}
  not: ${azure_envoyPublicIpAddressV6}
";
    let field = ["azure".to_owned(), "envoyPublicIpAddress".to_owned()];
    let found = [("t.yaml", template), ("v.yaml", values), ("o.yaml", other)]
        .iter()
        .flat_map(|(file, text)| readers_in(file, text, &Syntax::Any, whole(&field, &[])))
        .map(|one| format!("{}:{} {:?} {}", one.file, one.line, one.how, one.text))
        .collect::<Vec<_>>();
    insta::assert_snapshot!(found.join("\n"), @r#"
    t.yaml:4 Template - value: {{ .Values.azure.envoyPublicIpAddress }}
    t.yaml:6 Template - value: {{ index .Values "azure" "envoyPublicIpAddress" | quote }}
    t.yaml:8 Template {{ toYaml .Values.azure | indent 4 }}
    t.yaml:9 Template {{ $.Values.global.azure.envoyPublicIpAddress }}
    v.yaml:3 ValuesKey envoyPublicIpAddress: 20.1.2.3
    v.yaml:8 ValuesKey envoyPublicIpAddress: ""
    v.yaml:9 ValuesKey azure.envoyPublicIpAddress: flat
    o.yaml:2 Word - name: azure.envoyPublicIpAddress
    o.yaml:4 Word value: '{{azure.envoyPublicIpAddress}}'
    o.yaml:5 Substitution substituted: ${azure_envoyPublicIpAddress:=none}
    "#);
}

#[test]
fn variables_of_a_published_manifest_have_the_names_of_its_data() {
    let text = "\
- ${address}
- ${data_address}
- $${address}
- ${address_v6}
# ${address}
- ${name:=none}
- ${other}
";
    let owned = |parts: &[&str]| {
        parts
            .iter()
            .map(|part| (*part).to_owned())
            .collect::<Vec<_>>()
    };
    let lines = |found: Vec<FactReader>| found.iter().map(|one| one.line).collect::<Vec<_>>();
    let field = owned(&["data", "address"]);
    assert_eq!(
        lines(readers_in("a.yaml", text, &Syntax::Any, whole(&field, &[]))),
        [1, 2]
    );
    // The whole object is removed.
    let parts = [field, owned(&["data", "name"])];
    let all = owned(&["data"]);
    assert_eq!(
        lines(readers_in(
            "a.yaml",
            text,
            &Syntax::Any,
            whole(&all, &parts)
        )),
        [1, 2, 6]
    );
    let except = BTreeSet::from(["address".to_owned()]);
    let syntax = Syntax::Variables { except };
    let found = readers_in("a.yaml", text, &syntax, whole(&all, &parts));
    assert_eq!(lines(found), [2, 6]);
}

#[test]
fn kustomizations_tell_what_they_apply_and_substitute() {
    let text = "\
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
spec:
  path: ./apps/edge/
  postBuild:
    substitute: { zone: b }
    substituteFrom: [{ kind: ConfigMap, name: facts }]
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
spec: { path: flux/prod }
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: {{ .Values.kind }}
---
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
";
    let found = kustomizations("a.yaml", text);
    let shown: Vec<String> = found
        .iter()
        .map(|one| {
            let place = &one.place;
            format!(
                "{}:{} `{}` {} {:?}",
                place.file, place.line, one.path, one.substitutes, one.sets
            )
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
    a.yaml:7 `apps/edge` true {"zone"}
    a.yaml:12 `flux/prod` false {}
    "#);
    assert!(found[1].applies("flux/prod/facts.yaml"));
    assert!(!found[1].applies("flux/production/facts.yaml"));
}
