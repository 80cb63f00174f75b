//! Every block and attribute of the project file, in tables. Both the reader and the reference page are generated from
//! them, so they cannot differ.
//!
//! Not here: the tables of gates and other blocks inside a stack (`stack_schema`), reading (`fields`), the rules
//! between blocks (`check`).

use crate::base::duration::EXAMPLES;
use crate::hcl::evaluator::AllowedRefs;
use crate::policy::PolicyPhase;
use crate::project::config::stack_schema::{DISCOVER, STACK};
use crate::project::context::{HookStage, HookTiming};
use crate::render::UndefinedMode;
use crate::render::checks::CheckKind;

/// A kind of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Text,
    Bool,
    /// An integer, zero or more.
    Count,
    /// An integer above zero.
    Positive,
    Integer,
    Duration,
    /// A duration above zero.
    Limit,
    /// A text that is not empty.
    Name,
    Texts,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Some of these words.
    Words(&'static [&'static str]),
    /// A path inside the project.
    Path,
    Paths,
    /// A path or a list of paths.
    PathOrPaths,
    Globs,
    /// Globs that may leave the project.
    AnyGlobs,
    /// An object with arbitrary entries.
    Map,
    Any,
    /// A list of `stack.NAME`.
    Stacks,
    /// A map, or a list of strings.
    Each,
    Constraint,
    /// `secret("REF")`.
    Secret,
    /// `NAME/vN`.
    Contract,
    /// `sha256:…`.
    Digest,
    /// A schedule with five fields.
    Cron,
}

impl ValueKind {
    /// The name in messages and on the reference page.
    pub(crate) fn title(self) -> String {
        match self {
            Self::Text => "a string".to_owned(),
            Self::Bool => "a bool".to_owned(),
            Self::Count => "a whole number from 0".to_owned(),
            Self::Positive => "a whole number from 1".to_owned(),
            Self::Integer => "a whole number".to_owned(),
            Self::Limit => format!("a duration above zero, such as {EXAMPLES}"),
            Self::Name => "a string that is not empty".to_owned(),
            Self::Duration => format!("a duration such as {EXAMPLES}"),
            Self::Texts => "a list of strings".to_owned(),
            Self::Word(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
                words.join(" or ")
            }
            Self::Words(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
                format!("a list of {}", words.join(", "))
            }
            Self::Path => "a path".to_owned(),
            Self::Paths => "a list of paths".to_owned(),
            Self::PathOrPaths => "a path or a list of paths".to_owned(),
            Self::Globs | Self::AnyGlobs => "a list of globs".to_owned(),
            Self::Map => "an object".to_owned(),
            Self::Any => "any value".to_owned(),
            Self::Stacks => "a list of stacks such as `[stack.NAME]`".to_owned(),
            Self::Each => "an object or a list of strings".to_owned(),
            Self::Constraint => "a version constraint such as `~> 1.11`".to_owned(),
            Self::Secret => "a secret such as `secret(\"file:PATH\")`".to_owned(),
            Self::Contract => "a contract such as `cluster/v1`".to_owned(),
            Self::Digest => "a digest such as `sha256:…`".to_owned(),
            Self::Cron => "a schedule of five fields such as `0 6 * * *`".to_owned(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Attr {
    pub(crate) name: &'static str,
    pub(crate) kind: ValueKind,
    pub(crate) required: bool,
    pub(crate) default: &'static str,
    pub(crate) refs: AllowedRefs,
    pub(crate) doc: &'static str,
    /// The feature is not implemented yet.
    pub(crate) later: bool,
}

pub(crate) const fn attr(name: &'static str, kind: ValueKind, doc: &'static str) -> Attr {
    Attr {
        name,
        kind,
        required: false,
        default: "",
        refs: AllowedRefs::Load,
        doc,
        later: false,
    }
}

impl Attr {
    pub(crate) const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    pub(crate) const fn later(mut self) -> Self {
        self.later = true;
        self
    }

    pub(crate) const fn default(mut self, default: &'static str) -> Self {
        self.default = default;
        self
    }

    pub(crate) const fn refs(mut self, refs: AllowedRefs) -> Self {
        self.refs = refs;
        self
    }
}

/// A block: its keyword, labels, attributes and nested blocks.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) word: &'static str,
    pub(crate) labels: &'static [Label],
    pub(crate) attrs: &'static [Attr],
    /// Additional attributes, by the first label.
    pub(crate) variants: &'static [Variant],
    pub(crate) blocks: &'static [NestedBlock],
    /// Any attribute is allowed (engine backends).
    pub(crate) open: bool,
    pub(crate) doc: &'static str,
    /// The feature is not implemented yet.
    pub(crate) later: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Label {
    pub(crate) name: &'static str,
    /// The allowed words. Empty: any name.
    pub(crate) words: &'static [&'static str],
}

#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) label: &'static str,
    pub(crate) attrs: &'static [Attr],
    pub(crate) doc: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NestedBlock {
    pub(crate) block: &'static Block,
    /// May occur more than once.
    pub(crate) many: bool,
}

pub(crate) const fn one(block: &'static Block) -> NestedBlock {
    NestedBlock { block, many: false }
}

pub(crate) const fn many(block: &'static Block) -> NestedBlock {
    NestedBlock { block, many: true }
}

pub(crate) const NAME: Label = Label {
    name: "NAME",
    words: &[],
};

/// The defaults of every block.
pub(crate) const PLAIN: Block = Block {
    word: "",
    labels: &[],
    attrs: &[],
    variants: &[],
    blocks: &[],
    open: false,
    doc: "",
    later: false,
};

/// The outer blocks, in the order of the reference page.
pub(crate) static TOP: &[&Block] = &[
    &PROJECT, &LAYER, &TARGET, &STACK, &DISCOVER, &CONTEXT, &POLICY, &WRITER, &FACTS, &RENDER,
];

pub(crate) static PROJECT: Block = Block {
    word: "project",
    labels: &[NAME],
    attrs: &[
        attr(
            "id",
            ValueKind::Text,
            "ties clones and worktrees to one home; written by `init`",
        ),
        attr(
            "parallelism",
            ValueKind::Positive,
            "engines at once in a change set",
        )
        .default("by cores"),
        attr(
            "platforms",
            ValueKind::Texts,
            "platforms of the provider lock file, such as `linux_amd64`",
        ),
        attr(
            "strict_secrets",
            ValueKind::Bool,
            "a secret too short to be masked is an error",
        )
        .default("false"),
    ],
    blocks: &[one(&ENGINE), one(&HISTORY), one(&GITOPS)],
    doc: "The project as a whole; exactly one.",
    ..PLAIN
};

pub(crate) static ENGINE: Block = Block {
    word: "engine",
    labels: &[Label {
        name: "ENGINE",
        words: &["tofu", "terraform"],
    }],
    attrs: &[attr(
        "version",
        ValueKind::Constraint,
        "versions that will do",
    )],
    doc: "The engine that runs stacks; a stack may override it.",
    ..PLAIN
};

static HISTORY: Block = Block {
    word: "history",
    attrs: &[
        attr(
            "keep",
            ValueKind::Duration,
            "how long runs and state versions are kept",
        ),
        attr(
            "at_least",
            ValueKind::Count,
            "how many state versions are kept however old",
        ),
    ],
    doc: "What is kept, and how long.",
    later: true,
    ..PLAIN
};

pub(crate) static GITOPS: Block = Block {
    word: "gitops",
    attrs: &[attr(
        "paths",
        ValueKind::AnyGlobs,
        "where facts are consumed; may lead out of the project",
    )
    .required()],
    doc: "Where facts are consumed: the check of contracts reads these.",
    ..PLAIN
};

static LAYER: Block = Block {
    word: "layer",
    labels: &[NAME],
    attrs: &[attr(
        "order",
        ValueKind::Integer,
        "its place: a stack may depend on its own layer and on lower ones",
    )
    .required()],
    doc: "A lifecycle tier.",
    ..PLAIN
};

static WRITER: Block = Block {
    word: "writer",
    labels: &[NAME],
    attrs: &[
        attr("issuer", ValueKind::Text, "who signs the tokens: an `https://` address").required(),
        attr("audience", ValueKind::Text, "whom the tokens are for").default("`\"terrane\"`"),
        attr(
            "claims",
            ValueKind::Map,
            "claims the token must contain: a string, or a list of which one must match; `*` matches anything but `/`, `**` anything",
        )
        .required(),
        attr(
            "token_env",
            ValueKind::Text,
            "the environment variable in which a job is given its token; on GitHub one is fetched if it is not set",
        )
        .default("`\"TERRANE_ID_TOKEN\"`"),
    ],
    doc: "Who counts as CI: jobs whose token this issuer signed, with these claims.",
    ..PLAIN
};

pub(crate) static CONTEXT: Block = Block {
    word: "context",
    labels: &[NAME],
    attrs: &[
        attr(
            "autoattach",
            ValueKind::Texts,
            "selectors of the stacks it attaches itself to: `target:X`, `layer:X`, `label:X`, a stack's name or a glob",
        ),
        attr(
            "priority",
            ValueKind::Integer,
            "higher wins; equal and conflicting is an error",
        )
        .default("0"),
        attr("env", ValueKind::Map, "environment of the engine").refs(AllowedRefs::Secrets),
        attr(
            "pass_env",
            ValueKind::Texts,
            "taken over from the caller's environment, by name or glob",
        ),
        attr(
            "vars",
            ValueKind::Map,
            "input variables, where the module declares them",
        )
        .refs(AllowedRefs::Secrets),
        attr(
            "files",
            ValueKind::Map,
            "files put beside the stack's module while it runs, mode 0600, by path from there",
        )
        .refs(AllowedRefs::Secrets),
    ],
    blocks: &[many(&HOOK), many(&CONTEXT_SECRET)],
    doc: "A named bundle of environment, variables, files, hooks and secrets for clusters.",
    ..PLAIN
};

/// The attributes of a Secret, for every block that describes one. Its entries may use these references.
pub(super) const fn secret_of_a_cluster(refs: AllowedRefs) -> [Attr; 4] {
    [
        attr("namespace", ValueKind::Text, "the namespace it lies in").required(),
        attr("data", ValueKind::Map, "its entries")
            .required()
            .refs(refs),
        attr(
            "labels",
            ValueKind::Map,
            "its labels, by which Argo CD knows credentials of repositories",
        ),
        attr("type", ValueKind::Text, "its type").default("`\"Opaque\"`"),
    ]
}

pub(crate) static CONTEXT_SECRET: Block = Block {
    word: "secret",
    labels: &[NAME],
    attrs: &secret_of_a_cluster(AllowedRefs::Secrets),
    doc: "A Secret that every `bootstrap` with a `kubeconfig` puts into its cluster, in the stacks that have this context. A `secret` of that name and namespace in the `bootstrap` itself comes first.",
    ..PLAIN
};

pub(crate) static HOOK: Block = Block {
    word: "hook",
    labels: &[
        Label {
            name: "WHEN",
            words: HookTiming::WORDS,
        },
        Label {
            name: "STAGE",
            words: HookStage::WORDS,
        },
    ],
    attrs: &[
        attr(
            "run",
            ValueKind::Texts,
            "program and arguments; a program of the project by its path from the root",
        )
        .required()
        .refs(AllowedRefs::Later),
        attr("timeout", ValueKind::Limit, "how long it may take").default("`\"10m\"`"),
        attr(
            "env",
            ValueKind::Map,
            "its environment, besides that of the engine",
        )
        .refs(AllowedRefs::Secrets),
    ],
    doc: "A program that runs before or after a stage.",
    ..PLAIN
};

pub(crate) static POLICY: Block = Block {
    word: "policy",
    labels: &[NAME],
    attrs: &[
        attr(
            "path",
            ValueKind::Path,
            "its Rego: a file, a directory or a glob; `*_test.rego` is left out",
        )
        .required(),
        attr(
            "stacks",
            ValueKind::Texts,
            "selectors of the stacks it applies to: `target:X`, `layer:X`, `label:X`, a stack's name or a glob",
        )
        .default("all"),
        attr("at", ValueKind::Words(PolicyPhase::WORDS), "where it is asked").default("all three"),
        attr(
            "enforce",
            ValueKind::Bool,
            "`false`: what it denies, or requires approval for, is only a warning",
        )
        .default("true"),
    ],
    doc: "Rules in Rego that plans are checked against.",
    ..PLAIN
};

static TARGET: Block = Block {
    word: "target",
    labels: &[NAME],
    attrs: &[
        attr("writers", ValueKind::Texts, "writers allowed to apply here: names of `writer` blocks, `server` (its own runners) or `anyone` (local work)").required(),
        attr("lane", ValueKind::Word(&["target", "stack"]), "`stack`: change sets that share no stack may run at the same time").default("`\"target\"`"),
        attr("providers", ValueKind::Texts, "providers that may be used, as `namespace/type`; not given: any; `[]`: none but the engine's own"),
    ],
    blocks: &[one(&BACKEND), one(&APPROVAL)],
    doc: "A place to deploy to.",
    ..PLAIN
};

pub(crate) static BACKEND: Block = Block {
    word: "backend",
    labels: &[Label {
        name: "KIND",
        words: &[],
    }],
    open: true,
    doc: "A backend of the engine, with its settings; without this block states live in terrane's own state service.",
    ..PLAIN
};

pub(crate) static APPROVAL: Block = Block {
    word: "approval",
    attrs: &[
        attr("count", ValueKind::Count, "how many must approve").default("1"),
        attr("role", ValueKind::Name, "the role that may approve"),
        attr("author", ValueKind::Bool, "whether the author may approve").default("false"),
        attr("expires", ValueKind::Limit, "how long an approval holds"),
        attr(
            "scope",
            ValueKind::Word(&["changeset", "stack"]),
            "`stack`: asked for each stack by itself",
        )
        .default("`\"changeset\"`"),
    ],
    doc: "Who must approve before an apply. What a stack's block leaves out is as in its target.",
    ..PLAIN
};

static FACTS: Block = Block {
    word: "facts",
    labels: &[NAME],
    attrs: &[
        attr("repository", ValueKind::Text, "a Git remote or a path; default: the project's own remote").refs(AllowedRefs::Later),
        attr("branch", ValueKind::Text, "the branch that is written").default("`\"facts\"`").refs(AllowedRefs::Later),
        attr("owns", ValueKind::Word(&["branch", "paths"]), "`branch`: only terrane writes it; `paths`: only the published files, people edit the rest").default("`\"branch\"`"),
        attr("credential", ValueKind::Secret, "a key that may push").refs(AllowedRefs::Secrets),
        attr("sensitive", ValueKind::Word(&["encrypt", "reference", "refuse"]), "what happens to sensitive values").default("`\"refuse\"`"),
        attr("encrypt", ValueKind::Word(&["all"]), "`all`: every value is encrypted"),
    ],
    doc: "A place that published facts are written to.",
    ..PLAIN
};

static RENDER: Block = Block {
    word: "render",
    labels: &[NAME],
    attrs: &[
        attr(
            "templates",
            ValueKind::PathOrPaths,
            "directory of the templates; of several, the first that has a file gives it",
        )
        .required(),
        attr(
            "data",
            ValueKind::Paths,
            "YAML, TOML or JSON files that the templates read; a later one wins, and values of one that is encrypted are secret",
        )
        .required(),
        attr("output", ValueKind::Path, "directory that is written").required(),
        attr("schema", ValueKind::Path, "JSON schema of the data"),
        attr("suffix", ValueKind::Text, "ending of templates; other files are copied").default("\".j2\""),
        attr(
            "undefined",
            ValueKind::Word(&UndefinedMode::WORDS),
            "the value of an undefined name",
        )
        .default("\"strict\""),
        attr(
            "exclude",
            ValueKind::Globs,
            "files among the templates that are not written; templates may import them",
        ),
        attr("keep_empty", ValueKind::Bool, "write files that come out empty").default("false"),
        attr("trim_blocks", ValueKind::Bool, "no line break after a block").default("true"),
        attr("lstrip_blocks", ValueKind::Bool, "no spaces before a block").default("true"),
        attr(
            "keep_trailing_newline",
            ValueKind::Bool,
            "the line break at the end of a template stays",
        )
        .default("true"),
        attr(
            "defaults",
            ValueKind::Map,
            "data that stand in where the files say nothing; maps are merged",
        ),
        attr(
            "values",
            ValueKind::Map,
            "more names, each a Jinja expression over the data, such as `\"nodes | length > 1\"`",
        ),
        attr(
            "when",
            ValueKind::Map,
            "by glob of generated files, a Jinja expression: they are made only if it is true",
        ),
        attr("secrets", ValueKind::Map, "more names, each `secret(\"REF\")`").refs(AllowedRefs::Secrets),
        attr(
            "sensitive",
            ValueKind::Texts,
            "paths of values in plain data files that are secret, such as `tfstate_*`",
        ),
    ],
    blocks: &[one(&DELIMITERS), many(&EACH), many(&CHECK)],
    doc: "Files made from templates: `terrane render`.",
    ..PLAIN
};

pub(crate) static DELIMITERS: Block = Block {
    word: "delimiters",
    attrs: &[
        attr("block", ValueKind::Texts, "around statements").default("`{%`, `%}`"),
        attr("variable", ValueKind::Texts, "around values").default("`{{`, `}}`"),
        attr("comment", ValueKind::Texts, "around comments").default("`{#`, `#}`"),
    ],
    doc: "What surrounds template code: each a start and an end.",
    ..PLAIN
};

pub(crate) static EACH: Block = Block {
    word: "each",
    attrs: &[
        attr("list", ValueKind::Text, "name of a list in the data, such as `nodes`").required(),
        attr(
            "values",
            ValueKind::Map,
            "keys that an item gets unless it has them, each a Jinja expression; `item` is the item",
        )
        .required(),
    ],
    doc: "Defaults of the items of a list.",
    ..PLAIN
};

pub(crate) static CHECK: Block = Block {
    word: "check",
    labels: &[Label {
        name: "KIND",
        words: &CheckKind::WORDS,
    }],
    attrs: &[
        attr("paths", ValueKind::Texts, "values, such as `nodes[*].name`").required(),
        attr(
            "of",
            ValueKind::Texts,
            "for `inside` the networks, for `known` the values that they must be among",
        ),
    ],
    doc: "What a schema cannot say: `address`, `cidr` and `mac` are forms, `unique` values are there once, `separate` networks do not overlap, `inside` lies in one of `of`, `known` is among `of`.",
    ..PLAIN
};
