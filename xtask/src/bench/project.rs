//! The generated project: stacks in five layers, three upstream outputs each, `terraform_data` only.
//!
//! All tools use the same directory: `terrane.hcl` at the root, `terragrunt.hcl` beside each module, lists of
//! waves for the shell loops.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use super::options::Options;
use crate::child;

const LAYERS: usize = 5;
const UPSTREAMS: usize = 3;

#[derive(Debug)]
pub(crate) struct BenchProject {
    /// Stacks by layer, bottom first.
    layers: Vec<Vec<Stack>>,
}

#[derive(Debug)]
struct Stack {
    name: String,
    /// Empty in the lowest layer.
    upstreams: Vec<String>,
}

impl BenchProject {
    pub(crate) fn of(stacks: usize) -> Self {
        let width = stacks.div_ceil(LAYERS);
        let mut layers: Vec<Vec<Stack>> = Vec::new();
        for index in 0..stacks {
            let (layer, place) = (index / width, index % width);
            if place == 0 {
                layers.push(Vec::new());
            }
            let upstreams = match layer.checked_sub(1) {
                None => Vec::new(),
                Some(below) => (0..UPSTREAMS.min(width))
                    .map(|step| layers[below][(place + step) % width].name.clone())
                    .collect(),
            };
            layers[layer].push(Stack {
                name: format!("s{layer}-{place:03}"),
                upstreams,
            });
        }
        Self { layers }
    }

    /// The last stack: its output depends on all the others.
    pub(crate) fn last(&self) -> &str {
        self.layers
            .last()
            .and_then(|layer| layer.last())
            .map_or("", |stack| stack.name.as_str())
    }

    pub(crate) fn len(&self) -> usize {
        self.layers.iter().map(Vec::len).sum()
    }

    /// Writes and commits everything, since most projects are in Git.
    pub(crate) fn write(&self, dir: &Path, options: &Options) -> io::Result<()> {
        std::fs::create_dir_all(dir.join("outputs"))?;
        std::fs::create_dir_all(dir.join("waves"))?;
        std::fs::write(dir.join("terrane.hcl"), self.project_file(options.flavor()))?;
        std::fs::write(
            dir.join(".gitignore"),
            ".terraform/\n*.tfstate*\n/outputs/\n*.auto.tfvars.json\nplan.*\n/data/\n/usage*\n",
        )?;
        for (index, layer) in self.layers.iter().enumerate() {
            let mut wave = String::new();
            for stack in layer {
                let module = dir.join("stacks").join(&stack.name);
                std::fs::create_dir_all(&module)?;
                std::fs::write(module.join("main.tf"), stack.module())?;
                std::fs::write(module.join("terragrunt.hcl"), stack.terragrunt())?;
                std::fs::write(module.join("upstreams"), stack.upstreams.join("\n"))?;
                let _ = writeln!(wave, "{}", stack.name);
            }
            std::fs::write(dir.join("waves").join(format!("{index:02}")), wave)?;
        }
        child::stdout(dir, "git", &["init", "--quiet"])?;
        child::stdout(dir, "git", &["add", "--all"])?;
        child::stdout(
            dir,
            "git",
            &[
                "-c",
                "user.name=bench",
                "-c",
                "user.email=bench@example.io",
                "-c",
                "commit.gpgsign=false",
                "commit",
                "--quiet",
                "--message=generated",
            ],
        )?;
        Ok(())
    }

    fn project_file(&self, flavor: &str) -> String {
        let mut text = format!(
            "project \"bench\" {{\n  engine \"{flavor}\" {{ version = \">= 1.5\" }}\n}}\n\n\
             target \"local\" {{ writers = [\"anyone\"] }}\n"
        );
        for index in 0..self.layers.len() {
            let _ = writeln!(text, "layer \"layer{index}\" {{ order = {index} }}");
        }
        for (index, layer) in self.layers.iter().enumerate() {
            for stack in layer {
                let _ = write!(
                    text,
                    "\nstack \"{0}\" {{\n  path   = \"stacks/{0}\"\n  target = \"local\"\n  layer  = \"layer{index}\"\n",
                    stack.name
                );
                if !stack.upstreams.is_empty() {
                    text.push_str("  inputs = {\n");
                    for (slot, upstream) in stack.upstreams.iter().enumerate() {
                        let _ =
                            writeln!(text, "    upstream_{slot} = stack.{upstream}.output.value");
                    }
                    text.push_str("  }\n");
                }
                text.push_str("}\n");
            }
        }
        text
    }
}

impl Stack {
    fn module(&self) -> String {
        let mut text = String::new();
        for slot in 0..self.upstreams.len() {
            let _ = writeln!(
                text,
                "variable \"upstream_{slot}\" {{\n  type = object({{ name = string, digest = string }})\n}}\n"
            );
        }
        let digests: Vec<String> = (0..self.upstreams.len())
            .map(|slot| format!("var.upstream_{slot}.digest"))
            .collect();
        let _ = write!(
            text,
            "locals {{\n  from = [{}]\n}}\n\n\
             resource \"terraform_data\" \"base\" {{\n  input = {{\n    name = \"{1}\"\n    from = local.from\n  }}\n}}\n\n\
             resource \"terraform_data\" \"node\" {{\n  count = 3\n  input = {{\n    name   = \"{1}-${{count.index}}\"\n    base   = terraform_data.base.output.name\n    labels = {{ stack = \"{1}\", place = tostring(count.index) }}\n  }}\n}}\n\n\
             output \"value\" {{\n  value = {{\n    name   = terraform_data.base.output.name\n    digest = sha256(join(\",\", concat([\"{1}\"], local.from)))\n  }}\n}}\n",
            digests.join(", "),
            self.name
        );
        text
    }

    fn terragrunt(&self) -> String {
        let mut text = String::new();
        for (slot, upstream) in self.upstreams.iter().enumerate() {
            let _ = writeln!(
                text,
                "dependency \"upstream_{slot}\" {{\n  config_path = \"../{upstream}\"\n}}\n"
            );
        }
        text.push_str("inputs = {\n");
        for slot in 0..self.upstreams.len() {
            let _ = writeln!(
                text,
                "  upstream_{slot} = dependency.upstream_{slot}.outputs.value"
            );
        }
        text.push_str("}\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_fill_five_layers_with_three_upstreams_each() {
        let project = BenchProject::of(50);
        let widths: Vec<usize> = project.layers.iter().map(Vec::len).collect();
        assert_eq!(widths, [10; 5]);
        assert!(
            project.layers[0]
                .iter()
                .all(|stack| stack.upstreams.is_empty())
        );
        for layer in &project.layers[1..] {
            assert!(layer.iter().all(|stack| stack.upstreams.len() == UPSTREAMS));
        }
        assert_eq!(
            project.layers[1][9].upstreams,
            ["s0-009", "s0-000", "s0-001"]
        );
        assert_eq!((project.len(), project.last()), (50, "s4-009"));
    }

    #[test]
    fn odd_numbers_work_too() {
        for stacks in [1, 2, 3, 7, 11] {
            assert_eq!(BenchProject::of(stacks).len(), stacks);
        }
    }
}
