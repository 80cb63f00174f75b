//! The tables of stacks and of the blocks inside them: gates, publication, bootstrap.
//!
//! Not here: the other tables and their types (`schema`).

use crate::hcl::evaluator::AllowedRefs;
use crate::project::config::schema::{
    APPROVAL, Attr, Block, ENGINE, Label, NAME, PLAIN, ValueKind, Variant, attr, many, one,
    secret_of_a_cluster,
};

const FOR_EACH: Attr = attr(
    "for_each",
    ValueKind::Each,
    "one stack per entry, with `each.key` and `each.value`",
);
const STACK_NAME: Attr = attr(
    "name",
    ValueKind::Text,
    "name of each stack of a `for_each`",
)
.default("`\"NAME-${each.key}\"`");
const PATH: Attr = attr(
    "path",
    ValueKind::Path,
    "directory of the root module; in a `stack.hcl` its own directory",
)
.required();
const TARGET: Attr = attr("target", ValueKind::Text, "the target it is deployed to").required();
const LAYER: Attr = attr("layer", ValueKind::Text, "the layer it belongs to").required();
const LABELS: Attr = attr("labels", ValueKind::Texts, "words to select it by");
const CONTEXTS: Attr = attr(
    "contexts",
    ValueKind::Texts,
    "contexts by name, besides those that attach themselves",
);
const ENABLED: Attr = attr(
    "enabled",
    ValueKind::Bool,
    "`false`: not part of the project, its directory may be missing",
)
.default("true");
const STATE: Attr = attr("state", ValueKind::Text, "name of its state").default("the stack's name");
const INPUTS: Attr = attr(
    "inputs",
    ValueKind::Map,
    "input variables; `stack.NAME.output.KEY` makes an `output` edge",
)
.refs(AllowedRefs::Inputs);
const VAR_FILES: Attr = attr(
    "var_files",
    ValueKind::Paths,
    "files of input variables, from the module's directory or else from the project's root",
);
const AFTER: Attr = attr(
    "after",
    ValueKind::Stacks,
    "stacks it comes after: `order` edges",
)
.refs(AllowedRefs::After);
const WAIT: Attr = attr(
    "wait",
    ValueKind::Word(&["verified", "applied"]),
    "what its upstreams must have reached",
)
.default("`\"verified\"`");
const TRIGGER: Attr = attr(
    "trigger",
    ValueKind::Word(&["push", "manual"]),
    "`manual`: a merge does not start it",
)
.default("`\"push\"`")
.later();
const APPLY: Attr = attr(
    "apply",
    ValueKind::Word(&["manual", "auto"]),
    "whether a person confirms an apply; a destroy is always confirmed",
)
.default("`\"manual\"`");
const PROTECTED: Attr = attr(
    "protected",
    ValueKind::Bool,
    "destroy requires typing the stack's name",
)
.default("false");
const BOUNDARY: Attr = attr(
    "boundary",
    ValueKind::Word(&["bootstrap"]),
    "this stack may hold Kubernetes resources",
)
.later();
const WATCH: Attr = attr(
    "watch",
    ValueKind::Globs,
    "files outside the module that count as its source",
);
const INCLUDE: Attr = attr(
    "include",
    ValueKind::Globs,
    "git-ignored files that belong into its snapshot: of its directory or, if nothing is there, from the project's root",
);
const ARTIFACTS: Attr = attr(
    "artifacts",
    ValueKind::Globs,
    "files it writes into its directory: kept encrypted with its state, restored before each run",
);
const RENDER: Attr = attr(
    "render",
    ValueKind::Text,
    "a render that must be fresh before it is planned",
);

pub(crate) static STACK: Block = Block {
    word: "stack",
    labels: &[NAME],
    attrs: &[
        FOR_EACH, STACK_NAME, PATH, TARGET, LAYER, LABELS, CONTEXTS, ENABLED, STATE, INPUTS,
        VAR_FILES, AFTER, WAIT, TRIGGER, APPLY, PROTECTED, BOUNDARY, WATCH, INCLUDE, ARTIFACTS,
        RENDER,
    ],
    blocks: &[
        one(&ENGINE),
        one(&TIMEOUT),
        one(&APPROVAL),
        many(&PUBLISH),
        many(&BOOTSTRAP),
        many(&GATE),
        one(&DRIFT),
    ],
    doc: "One root module with its own state.",
    ..PLAIN
};

pub(crate) static DISCOVER: Block = Block {
    word: "discover",
    labels: &[NAME],
    attrs: &[
        attr(
            "glob",
            ValueKind::Text,
            "directories that are stacks, if they hold files of the engine and Git does not ignore them",
        )
        .required(),
        attr(
            "name",
            ValueKind::Text,
            "name of each, from `dir[N]` and `dir.path`",
        )
        .required(),
        TARGET,
        LAYER,
        LABELS,
        CONTEXTS,
        ENABLED,
        STATE,
        INPUTS,
        VAR_FILES,
        AFTER,
        WAIT,
        TRIGGER,
        APPLY,
        PROTECTED,
        BOUNDARY,
        WATCH,
        INCLUDE,
        ARTIFACTS,
        RENDER,
    ],
    blocks: &[
        one(&ENGINE),
        one(&TIMEOUT),
        one(&APPROVAL),
        many(&PUBLISH),
        many(&BOOTSTRAP),
        many(&GATE),
        one(&DRIFT),
    ],
    doc: "Stacks found by their place; its attributes are the defaults of what is found.",
    ..PLAIN
};

static TIMEOUT: Block = Block {
    word: "timeout",
    attrs: &[
        attr("plan", ValueKind::Limit, "how long a plan may take"),
        attr(
            "apply",
            ValueKind::Limit,
            "how long an apply may take; it is interrupted, never killed",
        ),
    ],
    doc: "Time limits.",
    ..PLAIN
};

static DRIFT: Block = Block {
    word: "drift",
    attrs: &[
        attr("schedule", ValueKind::Cron, "when to look"),
        attr(
            "remediate",
            ValueKind::Word(&["never", "ask", "auto"]),
            "what to do about it",
        )
        .default("`\"never\"`"),
    ],
    doc: "Looking for drift.",
    later: true,
    ..PLAIN
};

pub(crate) static PUBLISH: Block = Block {
    word: "publish",
    labels: &[Label {
        name: "FACTS",
        words: &[],
    }],
    attrs: &[
        attr("for_each", ValueKind::Each, "one file per entry").refs(AllowedRefs::Own),
        attr(
            "path",
            ValueKind::Path,
            "the file that is written, `.yaml` or `.json`",
        )
        .required()
        .refs(AllowedRefs::Own),
        attr(
            "contract",
            ValueKind::Contract,
            "what the stack's outputs must satisfy",
        ),
        attr(
            "partial",
            ValueKind::Texts,
            "fields of the contract that may be missing for now",
        ),
        attr(
            "values",
            ValueKind::Map,
            "what is published; default: the contract's outputs as they are",
        )
        .refs(AllowedRefs::Own),
        attr(
            "plain",
            ValueKind::Texts,
            "fields that look like a secret and are none",
        ),
    ],
    blocks: &[many(&SINK)],
    doc: "Publishes facts of the stack after its apply.",
    ..PLAIN
};

const KUBECONFIG: Attr = attr("kubeconfig", ValueKind::Any, "how to reach the cluster")
    .required()
    .refs(AllowedRefs::Own);
const NAMESPACE: Attr = attr("namespace", ValueKind::Text, "namespace")
    .required()
    .refs(AllowedRefs::Own);
const OBJECT_NAME: Attr = attr("name", ValueKind::Text, "name of the object")
    .required()
    .refs(AllowedRefs::Own);
const IN_CLUSTER: &[Attr] = &[KUBECONFIG, NAMESPACE, OBJECT_NAME];

static SINK: Block = Block {
    word: "sink",
    labels: &[Label {
        name: "KIND",
        words: &["configmap", "secret", "argocd-cluster", "file"],
    }],
    variants: &[
        Variant {
            label: "configmap",
            attrs: IN_CLUSTER,
            doc: "a ConfigMap",
        },
        Variant {
            label: "secret",
            attrs: IN_CLUSTER,
            doc: "a Secret",
        },
        Variant {
            label: "argocd-cluster",
            attrs: &[
                KUBECONFIG,
                NAMESPACE,
                OBJECT_NAME,
                attr(
                    "server",
                    ValueKind::Text,
                    "address of the cluster that Argo CD gets",
                )
                .default("the one it runs in, or what is there")
                .refs(AllowedRefs::Own),
            ],
            doc: "a cluster of Argo CD, with the facts as its annotations and labels",
        },
        Variant {
            label: "file",
            attrs: &[attr("path", ValueKind::Path, "the file")
                .required()
                .refs(AllowedRefs::Own)],
            doc: "a file of the project",
        },
    ],
    doc: "A further place the facts go to.",
    ..PLAIN
};

static BOOTSTRAP: Block = Block {
    word: "bootstrap",
    labels: &[Label {
        name: "KIND",
        words: &["argocd", "flux", "command"],
    }],
    attrs: &[
        attr("kubeconfig", ValueKind::Any, "how to reach the cluster")
            .refs(AllowedRefs::OwnSecrets),
        attr("timeout", ValueKind::Duration, "time limit of each step")
            .default("15m for what is waited for"),
    ],
    variants: &[
        Variant {
            label: "argocd",
            attrs: GITOPS_AGENT,
            doc: "installs Argo CD",
        },
        Variant {
            label: "flux",
            attrs: GITOPS_AGENT,
            doc: "installs Flux",
        },
        Variant {
            label: "command",
            attrs: &[
                attr("run", ValueKind::Texts, "program and arguments")
                    .required()
                    .refs(AllowedRefs::OwnSecrets),
                attr("env", ValueKind::Map, "its environment").refs(AllowedRefs::OwnSecrets),
            ],
            doc: "runs a program of the project",
        },
    ],
    blocks: &[many(&SECRET)],
    doc: "Makes a new cluster follow Git.",
    ..PLAIN
};

const GITOPS_AGENT: &[Attr] = &[
    attr("version", ValueKind::Text, "version to install").required(),
    attr("namespace", ValueKind::Text, "namespace it runs in")
        .default("`\"argocd\"`, `\"flux-system\"`"),
    attr(
        "manifests",
        ValueKind::Paths,
        "what it is installed from: manifests, a chart or a kustomization; default: the release of that version, if `digest` is given, else others install it",
    ),
    attr("values", ValueKind::Paths, "files of values for a chart"),
    attr(
        "digest",
        ValueKind::Digest,
        "digest of the manifests it installs",
    ),
    attr(
        "root",
        ValueKind::Paths,
        "manifests of the root applications",
    ),
    attr(
        "adopt",
        ValueKind::Bool,
        "take over what Helm or a person installed before",
    )
    .default("false"),
];

static SECRET: Block = Block {
    word: "secret",
    labels: &[NAME],
    attrs: &secret_of_a_cluster(AllowedRefs::OwnSecrets),
    doc: "A Secret that must be there first.",
    ..PLAIN
};

const fn probe(name: &'static str, kind: ValueKind, doc: &'static str) -> Attr {
    attr(name, kind, doc).refs(AllowedRefs::Gate)
}

pub(crate) static GATE: Block = Block {
    word: "gate",
    labels: &[
        Label {
            name: "KIND",
            words: &["dns", "tls", "tcp", "http", "oidc", "kubernetes", "argocd", "flux", "equal", "command"],
        },
        NAME,
    ],
    attrs: &[
        probe("for_each", ValueKind::Each, "one gate per entry; its name becomes `NAME-KEY`"),
        attr("interval", ValueKind::Duration, "from one look to the next").default("`\"15s\"`"),
        attr("timeout", ValueKind::Duration, "time until it has failed").default("`\"5m\"`"),
        attr("failures", ValueKind::Count, "so many failures in a row end it sooner"),
        attr("after", ValueKind::Texts, "gates that must have passed before; the name of a `for_each` means all of it"),
        attr("when", ValueKind::Word(&["applied", "destroyed"]), "after which of the two it is checked; after a destroy, outputs are those from before").default("`\"applied\"`"),
    ],
    variants: &[
        Variant {
            label: "dns",
            attrs: &[
                probe("names", ValueKind::Texts, "names to resolve; `*.NAME` is queried with a random label").required(),
                probe("expect", ValueKind::Any, "address or name; several: all, and no other"),
                probe("record", ValueKind::Text, "`A`, `AAAA`, `CNAME` or `TXT`").default("`\"A\"`"),
                probe("resolver", ValueKind::Text, "whom to ask: `host[:port]`; else the system's"),
                probe("authoritative", ValueKind::Bool, "all name servers must agree").default("false"),
                probe("absent", ValueKind::Bool, "must not resolve").default("false"),
            ],
            doc: "names resolve as they should",
        },
        Variant {
            label: "tls",
            attrs: &[
                probe("host", ValueKind::Text, "host").required(),
                probe("port", ValueKind::Count, "port").default("443"),
                probe("address", ValueKind::Text, "connect there instead"),
                probe("valid_for", ValueKind::Duration, "how long the certificate must hold"),
                probe("issuer", ValueKind::Text, "part of the name of who must have signed it"),
                probe("ca", ValueKind::Any, "certificates to trust instead of the system's, as PEM"),
                probe("alpn", ValueKind::Texts, "protocols to offer; one must be chosen"),
            ],
            doc: "a certificate is valid",
        },
        Variant {
            label: "tcp",
            attrs: &[
                probe("address", ValueKind::Text, "`host:port`").required(),
                probe("absent", ValueKind::Bool, "nothing may answer there").default("false"),
            ],
            doc: "a port answers",
        },
        Variant {
            label: "http",
            attrs: &[
                probe("url", ValueKind::Text, "address").required(),
                probe("method", ValueKind::Text, "method").default("`\"GET\"`"),
                probe("headers", ValueKind::Map, "headers to send"),
                probe("status", ValueKind::Count, "expected status").default("200, or any redirect with `redirect`"),
                probe("expect_headers", ValueKind::Map, "expected headers"),
                probe("redirect", ValueKind::Text, "where it must lead; none is followed"),
                probe("body", ValueKind::Text, "pattern the body must match"),
                probe("json", ValueKind::Map, "paths such as `items[0].name`, and the values the body must hold there"),
                probe("ca", ValueKind::Any, "certificates to trust instead of the system's, as PEM"),
            ],
            doc: "a page answers as it should",
        },
        Variant {
            label: "oidc",
            attrs: &[
                probe("issuer", ValueKind::Text, "issuer").required(),
                probe("client_id", ValueKind::Text, "client"),
                probe("login_url", ValueKind::Text, "its redirect must reach the issuer with that client"),
                probe("ca", ValueKind::Any, "certificates to trust instead of the system's, as PEM"),
            ],
            doc: "sign-in works",
        },
        Variant {
            label: "kubernetes",
            attrs: &[
                probe("kubeconfig", ValueKind::Any, "how to reach the cluster").required(),
                probe("kind", ValueKind::Text, "kind of object").required(),
                probe("name", ValueKind::Text, "name of the object").required(),
                probe("namespace", ValueKind::Text, "namespace"),
                probe("condition", ValueKind::Text, "condition that must be true"),
                probe("field", ValueKind::Text, "field to compare with `expect`"),
                probe("expect", ValueKind::Any, "value the field must have"),
                probe("listener", ValueKind::Count, "port on which a Gateway must have a listener that is Programmed"),
            ],
            doc: "an object is as it should be",
        },
        Variant { label: "argocd", attrs: AGENT_GATE, doc: "applications are synced and healthy" },
        Variant { label: "flux", attrs: AGENT_GATE, doc: "objects are Ready" },
        Variant {
            label: "equal",
            attrs: &[
                probe("values", ValueKind::Any, "values that must all be equal, as a list or with names as an object; `dns(\"NAME\")` and `kubernetes(\"KIND/NAMESPACE/NAME\", \"FIELD\")` are allowed too").required(),
                probe("kubeconfig", ValueKind::Any, "the cluster that `kubernetes()` asks"),
            ],
            doc: "values agree",
        },
        Variant {
            label: "command",
            attrs: &[
                probe("run", ValueKind::Texts, "program and arguments").required(),
                probe("env", ValueKind::Map, "its environment"),
            ],
            doc: "a program of the project exits with 0",
        },
    ],
    doc: "A probe that must pass before the stack counts as done.",
    ..PLAIN
};

const AGENT_GATE: &[Attr] = &[
    probe("kubeconfig", ValueKind::Any, "how to reach the cluster").required(),
    probe("namespace", ValueKind::Text, "namespace"),
    probe("names", ValueKind::Texts, "globs of names"),
];
