//! The example `homelab`: two files of data become machines, their operating system and their cluster.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::{AgeKey, Makejinja, Sops, TestTerrane};

use crate::project::{shown, terrane};

const SETTINGS: &str = include_str!("homelab/makejinja.toml");
/// What `values`, `each` and `defaults` say in the project file, as its authors wrote it before.
const PLUGIN: &str = include_str!("homelab/plugin.py");

fn homelab() -> TestTerrane {
    let test = terrane();
    let key = test.project().join("age.key");
    let test = test.env("SOPS_AGE_KEY_FILE", &key.display().to_string());
    test.copy_example("homelab");
    AgeKey::generate().save(&key);
    test
}

fn files(dir: &Path, below: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir.join(below)).unwrap() {
        let entry = entry.unwrap();
        let path = below.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            files(dir, &path, all);
        } else {
            all.push(path);
        }
    }
}

#[test]
fn it_is_rendered_as_makejinja_does() {
    let test = homelab();
    test.write("makejinja.toml", SETTINGS)
        .write("plugin.py", PLUGIN);
    Makejinja::find().run(&test.project());
    let said = test.cli(&["render"]).expect(0);
    insta::assert_snapshot!(said.to_string(), @"
    homelab   14 created
      + .sops.yaml
      + infrastructure/README.md
      + infrastructure/secrets.sops.yaml
      + infrastructure/tofu/main.tf
      + infrastructure/tofu/providers.tf
      + infrastructure/tofu/terraform.tfvars
      + infrastructure/tofu/variables.tf
      + infrastructure/tofu/versions.tf
      + kubernetes/apps/cilium/values.yaml
      + kubernetes/flux/cluster-secrets.sops.yaml
      + kubernetes/flux/cluster-settings.yaml
      + talos/patches/controller/cluster.yaml
      + talos/patches/global/machine-network.yaml
      + talos/talconfig.yaml
    ");
    let sops = Sops::with_key(&test.project().join("age.key"));
    let theirs = test.project().join("theirs");
    let mut all = Vec::new();
    files(&theirs, Path::new(""), &mut all);
    assert_eq!(all.len(), said.stdout.lines().count() - 1);
    for path in all {
        let their = fs::read_to_string(theirs.join(&path)).unwrap();
        let name = path.to_str().unwrap();
        let our = if name.contains(".sops.") && name != ".sops.yaml" {
            sops.run(&test.project(), &["-d", name])
        } else {
            test.read(name)
        };
        assert_eq!(our, their, "{name}");
    }
}

#[test]
fn its_machines_are_planned_with_the_real_provider() {
    let test = homelab().with_proxmox();
    let refused = test.cli(&["plan"]).expect(1);
    assert!(
        refused.stderr.contains("terrane render homelab"),
        "{refused}"
    );
    let _ = test.cli(&["render"]).expect(0);
    let _ = test.cli(&["render", "--check"]).expect(0);
    let planned = test.cli(&["plan"]).expect(0);
    let page = shown(&test, &planned);
    assert!(page.contains("5 to add"), "{page}");
    assert!(
        page.contains("proxmox_virtual_environment_vm.talos_node[\"worker-1\"]"),
        "{page}"
    );
    for secret in ["00000000-1111-2222", "terraform@pve!homelab"] {
        assert!(!page.contains(secret), "{page}");
    }
    // A node more: stale until it is rendered, then one machine more.
    let nodes = test.read("nodes.yaml");
    let more = "  - name: worker-2\n    address: 192.0.2.14\n    controller: false\n    disk: /dev/sda\n    mac_addr: bc:24:11:00:00:14\n    schematic_id: 376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba\n";
    test.write("nodes.yaml", &format!("{nodes}{more}"));
    let stale = test.cli(&["plan"]).expect(4);
    assert!(stale.stderr.contains("`terrane render homelab`"), "{stale}");
    let _ = test.cli(&["render"]).expect(0);
    let planned = test.cli(&["plan"]).expect(0);
    assert!(planned.to_string().contains("6 to add"), "{planned}");
}

#[test]
fn its_data_are_checked() {
    let test = homelab();
    let nodes = test.read("nodes.yaml");
    let nodes = nodes
        .replace("192.0.2.12", "192.0.2.11")
        .replace("bc:24:11:00:00:13", "bc:24:11:00:00:zz")
        .replace("name: worker-1", "name: worker-9");
    let cluster = test.read("cluster.yaml");
    test.write("nodes.yaml", &nodes).write(
        "cluster.yaml",
        &format!("{cluster}cluster_pod_cidr: 192.0.0.0/16\n"),
    );
    let said = test.cli(&["render"]).expect(1);
    insta::assert_snapshot!(said.to_string(), @"
    ── stderr
    error: `nodes[2].mac_addr`: `bc:24:11:00:00:zz` is not a MAC address
      --> nodes.yaml:18:15
       |
    18 |     mac_addr: bc:24:11:00:00:zz
       |               ^^^^^^^^^^^^^^^^^ as the schema has it

    error: `192.0.2.11` occurs twice
      --> nodes.yaml:3:14   `nodes[0].address`
      --> nodes.yaml:9:14   `nodes[1].address`

    error: `192.0.2.0/24` and `192.0.0.0/16` overlap
      --> cluster.yaml:3:12    `node_cidr`
      --> cluster.yaml:26:19   `cluster_pod_cidr`

    error: `storage_nodes[0]` names `worker-1`, which is none of `nodes[*].name`
      --> cluster.yaml:19:17   not known
      = hint: known are `controller-1`, `controller-2`, `worker-9`

    4 errors in 2 files
    [exit 1]
    ");
}
