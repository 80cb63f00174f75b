//! Checks the shape of blocks: labels, unknown and missing words. Evaluates nothing.

use std::fmt::Write as _;
use std::ops::Range;

use hcl_edit::Span;
use hcl_edit::structure::{Attribute, Block as HclBlock, BlockLabel, Structure};

use crate::base::diagnostic::Finding;
use crate::base::ids::check_name;
use crate::hcl::suggest;
use crate::hcl::syntax::SourceFile;
use crate::project::config::reader::Reader;
use crate::project::config::schema::{Attr, Block, Variant};

impl Reader<'_> {
    /// Checks what is possible without evaluation: labels, unknown and missing words.
    pub(crate) fn shape(
        &mut self,
        source: &SourceFile,
        block: &HclBlock,
        spec: &'static Block,
        implied: &[&str],
    ) {
        let head = head(block);
        if spec.later {
            self.note_later(
                format!("`{}` blocks", spec.word),
                source.location(head.clone()),
            );
        }
        self.labels(source, block, spec);
        let attrs = attrs(block, spec);
        for structure in &block.body {
            match structure {
                Structure::Attribute(attribute) => {
                    self.attribute_shape(source, attribute, spec, &attrs);
                }
                Structure::Block(inner) => self.inner_shape(source, inner, spec, &attrs),
            }
        }
        for inner in spec.blocks.iter().filter(|inner| !inner.many) {
            let word = inner.block.word;
            if let Some(second) = block.body.get_blocks(word).nth(1) {
                let finding = Finding::error(
                    "duplicate-block",
                    format!("`{word}` is defined twice in one `{}`", spec.word),
                )
                .at(source.location(self::head(second)), "the second one");
                self.findings.push(finding);
            }
        }
        for attr in attrs
            .iter()
            .filter(|attr| attr.required && !implied.contains(&attr.name))
        {
            if !block.body.has_attribute(attr.name) && !is_misspelt(attr.name, block, &attrs) {
                let finding = Finding::error(
                    "missing-attribute",
                    format!("{} has no `{}`", title(block), attr.name),
                )
                .at(
                    source.location(head.clone()),
                    format!("`{}` is required", attr.name),
                )
                .hint(format!("add `{} = …`: {}", attr.name, attr.doc));
                self.findings.push(finding);
            }
        }
    }

    /// The same for a block and all nested blocks.
    pub(crate) fn deep_shape(
        &mut self,
        source: &SourceFile,
        block: &HclBlock,
        spec: &'static Block,
        implied: &[&str],
    ) {
        self.shape(source, block, spec, implied);
        for (inner, spec) in inner_blocks(block, spec) {
            self.deep_shape(source, inner, spec, &[]);
        }
    }

    fn labels(&mut self, source: &SourceFile, block: &HclBlock, spec: &'static Block) {
        if block.labels.len() != spec.labels.len() {
            let mut usage = spec.word.to_owned();
            for label in spec.labels {
                _ = write!(usage, " \"{}\"", label.name);
            }
            let finding = Finding::error(
                "wrong-labels",
                format!("`{}` is written as `{usage} {{ … }}`", spec.word),
            )
            .at(
                source.location(head(block)),
                format!("{} labels here", block.labels.len()),
            );
            self.findings.push(finding);
            return;
        }
        for (label, seen) in spec.labels.iter().zip(&block.labels) {
            let at = || source.location(label_span(seen));
            if label.words.is_empty() {
                if let Err(err) = check_name(seen.as_str()) {
                    let finding =
                        Finding::error("invalid-name", err.to_string()).at(at(), "this name");
                    self.findings.push(finding);
                }
            } else if !label.words.contains(&seen.as_str()) {
                let mut finding = Finding::error(
                    "unknown-kind",
                    format!("there is no {} `{}`", spec.word, seen.as_str()),
                )
                .at(at(), "unknown");
                finding.hint = suggest::hint(seen.as_str(), label.words.iter().copied());
                self.findings.push(finding);
            }
        }
    }

    fn attribute_shape(
        &mut self,
        source: &SourceFile,
        attribute: &Attribute,
        spec: &'static Block,
        attrs: &[&'static Attr],
    ) {
        let name = attribute.key.as_str();
        if spec.open || self.findings.is_full() {
            return;
        }
        let at = source.location(attribute.key.span().unwrap_or(0..0));
        if let Some(known) = attrs.iter().find(|attr| attr.name == name) {
            if known.later {
                self.note_later(format!("`{name}` of a `{}`", spec.word), at);
            }
            return;
        }
        if spec.blocks.iter().any(|inner| inner.block.word == name) {
            let finding = Finding::error(
                "wrong-shape",
                format!("`{name}` is a block, not an attribute"),
            )
            .at(at, "written as an attribute")
            .hint(format!("write `{name} {{ … }}`"));
            self.findings.push(finding);
            return;
        }
        let variant = spec
            .variants
            .iter()
            .find(|variant| variant.attrs.iter().any(|attr| attr.name == name));
        let mut finding = Finding::error(
            "unknown-attribute",
            format!("`{}` has no attribute `{name}`", spec.word),
        )
        .at(at, "unknown attribute");
        finding.hint = match variant {
            Some(variant) => Some(format!(
                "it belongs to `{} \"{}\"`",
                spec.word, variant.label
            )),
            None => suggest::hint(name, attrs.iter().map(|attr| attr.name)),
        };
        self.findings.push(finding);
    }

    fn inner_shape(
        &mut self,
        source: &SourceFile,
        inner: &HclBlock,
        spec: &'static Block,
        attrs: &[&'static Attr],
    ) {
        let word = inner.ident.as_str();
        if self.findings.is_full() || spec.blocks.iter().any(|known| known.block.word == word) {
            return;
        }
        let at = source.location(head(inner));
        let finding = if attrs.iter().any(|attr| attr.name == word) {
            Finding::error(
                "wrong-shape",
                format!("`{word}` is an attribute, not a block"),
            )
            .at(at, "written as a block")
            .hint(format!("write `{word} = …`"))
        } else if spec.open {
            Finding::error(
                "wrong-shape",
                format!("`{}` holds attributes only", spec.word),
            )
            .at(at, "this is a block")
            .hint(format!("write `{word} = {{ … }}`"))
        } else {
            let mut finding = Finding::error(
                "unknown-block",
                format!("`{}` has no block `{word}`", spec.word),
            )
            .at(at, "unknown block");
            let words = spec.blocks.iter().map(|known| known.block.word);
            finding.hint = suggest::hint(word, words.chain(attrs.iter().map(|attr| attr.name)));
            finding
        };
        self.findings.push(finding);
    }
}

/// The nested blocks that are in the table.
pub(crate) fn inner_blocks<'b>(
    block: &'b HclBlock,
    spec: &'static Block,
) -> impl Iterator<Item = (&'b HclBlock, &'static Block)> {
    block.body.blocks().filter_map(|inner| {
        let known = spec
            .blocks
            .iter()
            .find(|known| known.block.word == inner.ident.as_str())?;
        Some((inner, known.block))
    })
}

/// Whether a missing attribute is set under a similar name, which is reported on its own.
pub(crate) fn is_misspelt(name: &str, block: &HclBlock, attrs: &[&'static Attr]) -> bool {
    let known = || attrs.iter().map(|attr| attr.name);
    // Real blocks have fewer attributes, and comparing names is expensive.
    block.body.attributes().take(100).any(|attribute| {
        let seen = attribute.key.as_str();
        known().all(|known| known != seen) && suggest::nearest(seen, known()) == Some(name)
    })
}

/// All attributes of a block: its own and those of its variant.
pub(crate) fn attrs(block: &HclBlock, spec: &'static Block) -> Vec<&'static Attr> {
    let variant = variant(block, spec).map_or(&[][..], |variant| variant.attrs);
    spec.attrs.iter().chain(variant).collect()
}

fn variant(block: &HclBlock, spec: &'static Block) -> Option<&'static Variant> {
    let label = block.labels.first()?.as_str();
    spec.variants.iter().find(|variant| variant.label == label)
}

/// `stack "dns"` of `stack "dns" {`.
pub(crate) fn head(block: &HclBlock) -> Range<usize> {
    let start = block.ident.span().unwrap_or(0..0);
    let end = block
        .labels
        .last()
        .map_or(start.end, |label| label_span(label).end);
    start.start..end.max(start.end)
}

pub(crate) fn label_span(label: &BlockLabel) -> Range<usize> {
    match label {
        BlockLabel::Ident(ident) => ident.span(),
        BlockLabel::String(text) => text.span(),
    }
    .unwrap_or(0..0)
}

/// The name of a block in messages.
pub(crate) fn title(block: &HclBlock) -> String {
    match block.labels.last() {
        Some(label) => format!("{} `{}`", block.ident.as_str(), label.as_str()),
        None => format!("`{}`", block.ident.as_str()),
    }
}
