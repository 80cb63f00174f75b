//! Server-side apply that leaves fields of others alone: read, compare, then write what differs.

use std::sync::Arc;
use std::time::Duration;

use drivers::kubernetes::{
    ApplyOptions, Conflict, FIELD_MANAGER, KubernetesClient, KubernetesError,
};
use model::stage::bootstrap::{ObjectOutcome, ObjectReport, is_adoptable, is_gitops_manager};
use model::stage::kubernetes::{ObjectRef, condition, managers, without_bookkeeping};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How many requests run at once.
const AT_ONCE: usize = 8;

/// Objects that are applied together.
pub(crate) struct ApplyAll {
    pub(crate) client: KubernetesClient,
    pub(crate) objects: Vec<Value>,
    /// Take over objects that were installed by other means.
    pub(crate) adopt: bool,
    /// Take back fields that others manage.
    pub(crate) force: bool,
}

/// An object in the cluster, compared with its manifest.
#[derive(Clone, Debug)]
struct LiveObject {
    state: LiveState,
    /// The GitOps controller that writes to it.
    gitops: Option<String>,
    adopted_from: Vec<String>,
}

#[derive(Clone, Debug)]
enum LiveState {
    Missing,
    Same,
    Differs,
    Held(Vec<Conflict>),
}

const FOR_REAL: ApplyOptions = ApplyOptions {
    dry_run: false,
    force: false,
};

impl ApplyAll {
    pub(crate) async fn run(self) -> Result<Vec<ObjectReport>, KubernetesError> {
        let objects: Arc<[Value]> = self.objects.iter().map(prepared).collect();
        let all: Vec<usize> = (0..objects.len()).collect();
        let adopt = self.adopt;
        let found = self
            .each(&objects, &all, move |client, object, _| async move {
                look(&client, &object, adopt).await
            })
            .await?;
        let holder = found.iter().find_map(|found| found.gitops.clone());
        let holder = holder.filter(|_| !self.force);
        let found: Arc<[LiveObject]> = found.into();

        let (first, rest): (Vec<usize>, Vec<usize>) = all
            .into_iter()
            .partition(|index| comes_first(&objects[*index]));
        let mut outcomes = vec![ObjectOutcome::Same; objects.len()];
        for stage in [first, rest] {
            let (found, holder, force) = (Arc::clone(&found), holder.clone(), self.force);
            let ended = self
                .each(&objects, &stage, move |client, object, index| {
                    let (found, holder) = (found[index].clone(), holder.clone());
                    async move { act(&client, &object, found, holder, force).await }
                })
                .await?;
            for (index, outcome) in stage.iter().zip(ended) {
                outcomes[*index] = outcome;
            }
            // Objects of a new kind can follow only when the kind is served.
            for index in &stage {
                if matches!(
                    outcomes[*index],
                    ObjectOutcome::Created | ObjectOutcome::Changed
                ) {
                    established(&self.client, &objects[*index]).await?;
                }
            }
        }
        let named = objects.iter().zip(outcomes);
        Ok(named
            .filter_map(|(object, outcome)| {
                let object = ObjectRef::of(object)?;
                Some(ObjectReport { object, outcome })
            })
            .collect())
    }

    /// Runs `work` for some of the objects, several at once; the results are in their order.
    async fn each<T, F, W>(
        &self,
        objects: &Arc<[Value]>,
        which: &[usize],
        work: F,
    ) -> Result<Vec<T>, KubernetesError>
    where
        T: Send + 'static,
        F: Fn(KubernetesClient, Value, usize) -> W,
        W: Future<Output = Result<T, KubernetesError>> + Send + 'static,
    {
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let mut running = JoinSet::new();
        for (place, index) in which.iter().enumerate() {
            let job = work(self.client.clone(), objects[*index].clone(), *index);
            let turns = Arc::clone(&turns);
            running.spawn(async move {
                let _turn = turns.acquire().await;
                job.await.map(|done| (place, done))
            });
        }
        let mut done = Vec::new();
        while let Some(ended) = running.join_next().await {
            match ended {
                Ok(result) => done.push(result?),
                Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
            }
        }
        done.sort_by_key(|(place, _)| *place);
        Ok(done.into_iter().map(|(_, done)| done).collect())
    }
}

/// Applies one object as [`ApplyAll`] does, regardless of GitOps controllers.
pub(crate) async fn apply_one(
    client: &KubernetesClient,
    object: &Value,
    force: bool,
) -> Result<ObjectOutcome, KubernetesError> {
    let object = prepared(object);
    let found = look(client, &object, false).await?;
    act(client, &object, found, None, force).await
}

/// The manifest without fields that only the server sets.
fn prepared(object: &Value) -> Value {
    let mut object = object.clone();
    if let Value::Object(map) = &mut object {
        map.shift_remove("status");
        if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
            metadata.shift_remove("creationTimestamp");
            metadata.shift_remove("managedFields");
        }
    }
    object
}

/// Namespaces and kinds are applied before objects that need them.
fn comes_first(object: &Value) -> bool {
    let kind = object.get("kind").and_then(Value::as_str);
    matches!(kind, Some("Namespace" | "CustomResourceDefinition"))
}

async fn look(
    client: &KubernetesClient,
    object: &Value,
    adopt: bool,
) -> Result<LiveObject, KubernetesError> {
    let identity = ObjectRef::of(object).ok_or(KubernetesError::NoObject)?;
    let missing = LiveObject {
        state: LiveState::Missing,
        gitops: None,
        adopted_from: Vec::new(),
    };
    let Some(mut live) = client.get_ref(&identity).await? else {
        return Ok(missing);
    };
    let mut adopted_from = Vec::new();
    if adopt && let Some((from, now)) = take_over(client, &identity, &live).await? {
        (adopted_from, live) = (from, now);
    }
    let gitops = managers(&live)
        .into_iter()
        .find(|manager| manager.subresource.is_none() && is_gitops_manager(&manager.name));
    let dry = ApplyOptions {
        dry_run: true,
        ..FOR_REAL
    };
    let state = match client.apply(object, dry).await {
        Ok(would) if without_bookkeeping(&would) == without_bookkeeping(&live) => LiveState::Same,
        Ok(_) => LiveState::Differs,
        Err(KubernetesError::Conflict { conflicts, .. }) => LiveState::Held(conflicts),
        Err(err) => return Err(err),
    };
    Ok(LiveObject {
        state,
        gitops: gitops.map(|manager| manager.name),
        adopted_from,
    })
}

async fn act(
    client: &KubernetesClient,
    object: &Value,
    found: LiveObject,
    holder: Option<String>,
    force: bool,
) -> Result<ObjectOutcome, KubernetesError> {
    let outcome = match found.state {
        // The controller that reconciles the rest may have removed it on purpose.
        LiveState::Missing => match holder {
            Some(to) => return Ok(ObjectOutcome::LeftOut { to }),
            None => ObjectOutcome::Created,
        },
        LiveState::Held(conflicts) if force => {
            let all = ApplyOptions {
                force: true,
                ..FOR_REAL
            };
            client.apply(object, all).await?;
            let (managers, fields) = named(&conflicts);
            return Ok(ObjectOutcome::TakenBack { managers, fields });
        }
        LiveState::Held(conflicts) => return Ok(handed_over(&conflicts)),
        LiveState::Same if found.adopted_from.is_empty() => return Ok(ObjectOutcome::Same),
        LiveState::Same | LiveState::Differs if !found.adopted_from.is_empty() => {
            ObjectOutcome::Adopted {
                from: found.adopted_from,
            }
        }
        LiveState::Same | LiveState::Differs => ObjectOutcome::Changed,
    };
    match client.apply(object, FOR_REAL).await {
        Ok(_) => Ok(outcome),
        // Another manager changed it meanwhile.
        Err(KubernetesError::Conflict { conflicts, .. }) => Ok(handed_over(&conflicts)),
        Err(err) => Err(err),
    }
}

fn handed_over(conflicts: &[Conflict]) -> ObjectOutcome {
    let (managers, fields) = named(conflicts);
    ObjectOutcome::HandedOver { managers, fields }
}

fn named(conflicts: &[Conflict]) -> (Vec<String>, Vec<String>) {
    let mut managers: Vec<String> = conflicts.iter().map(|it| it.manager.clone()).collect();
    let mut fields: Vec<String> = conflicts.iter().map(|it| it.field.clone()).collect();
    for list in [&mut managers, &mut fields] {
        list.sort();
        list.dedup();
    }
    (managers, fields)
}

/// Removes other field managers from an object that terrane never managed. All values stay, also those that
/// the manifest does not have. Returns the former managers and the object.
async fn take_over(
    client: &KubernetesClient,
    identity: &ObjectRef,
    live: &Value,
) -> Result<Option<(Vec<String>, Value)>, KubernetesError> {
    let known = managers(live);
    if known.iter().any(|manager| manager.name == FIELD_MANAGER) {
        return Ok(None);
    }
    let is_theirs = |entry: &Value| {
        let manager = entry.get("manager").and_then(Value::as_str);
        entry.get("subresource").is_none() && manager.is_some_and(is_adoptable)
    };
    let entries = live
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array);
    let (theirs, mut kept): (Vec<Value>, Vec<Value>) = entries
        .into_iter()
        .flatten()
        .cloned()
        .partition(|entry| is_theirs(entry));
    if theirs.is_empty() {
        return Ok(None);
    }
    // With an empty list of managers, the server would start a new one for all fields.
    kept.push(json!({
        "manager": FIELD_MANAGER,
        "operation": "Apply",
        "apiVersion": identity.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:name": {}}},
    }));
    let operations = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/metadata/managedFields", "value": kept},
    ]);
    let now = client.patch_json(identity, &operations).await?;
    let mut from: Vec<String> = theirs
        .iter()
        .filter_map(|entry| entry.get("manager")?.as_str().map(str::to_owned))
        .collect();
    from.sort();
    from.dedup();
    Ok(Some((from, now)))
}

/// Waits until a new kind is served.
async fn established(client: &KubernetesClient, object: &Value) -> Result<(), KubernetesError> {
    const MOMENT: Duration = Duration::from_millis(100);
    let Some(identity) = ObjectRef::of(object) else {
        return Ok(());
    };
    if identity.kind != "CustomResourceDefinition" {
        return Ok(());
    }
    // The step has a time limit.
    loop {
        let live = client.get_ref(&identity).await?;
        let is_accepted = live.is_some_and(|live| condition(&live, "Established").is_well);
        if is_accepted && is_served(client, object).await? {
            return Ok(());
        }
        tokio::time::sleep(MOMENT).await;
    }
}

async fn is_served(client: &KubernetesClient, definition: &Value) -> Result<bool, KubernetesError> {
    let versions = definition["spec"]["versions"].as_array();
    let served = versions
        .into_iter()
        .flatten()
        .find(|version| version["served"] == true);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let Some(version) = served else {
        return Ok(true);
    };
    let group = text(&definition["spec"]["group"]);
    let of_kind = ObjectRef {
        api_version: format!("{group}/{}", text(&version["name"])),
        kind: text(&definition["spec"]["names"]["kind"]),
        namespace: None,
        name: String::new(),
    };
    match client.resource_of(&of_kind).await {
        Ok(_) => Ok(true),
        Err(KubernetesError::UnknownKind { .. }) => Ok(false),
        Err(err) => Err(err),
    }
}

/// Gives an object without a namespace this one, if its kind is namespaced.
pub(crate) async fn place(
    client: &KubernetesClient,
    object: &mut Value,
    namespace: &str,
) -> Result<(), KubernetesError> {
    let identity = ObjectRef::of(object).ok_or(KubernetesError::NoObject)?;
    if identity.namespace.is_some() {
        return Ok(());
    }
    match client.resource_of(&identity).await {
        Ok(resource) if resource.namespaced => object["metadata"]["namespace"] = namespace.into(),
        Ok(_) | Err(KubernetesError::UnknownKind { .. }) => {}
        Err(err) => return Err(err),
    }
    Ok(())
}

/// Like [`place`], for kinds that the manifests themselves define.
pub(crate) fn place_by_definitions(objects: &mut [Value], namespace: &str) {
    let defined: Vec<(String, String)> = objects
        .iter()
        .filter(|object| object["kind"] == "CustomResourceDefinition")
        .filter(|object| object["spec"]["scope"] == "Namespaced")
        .filter_map(|object| {
            let group = object["spec"]["group"].as_str()?;
            let kind = object["spec"]["names"]["kind"].as_str()?;
            Some((group.to_owned(), kind.to_owned()))
        })
        .collect();
    for object in objects {
        let Some(identity) = ObjectRef::of(object) else {
            continue;
        };
        let is_defined = defined
            .iter()
            .any(|(group, kind)| *group == identity.group() && *kind == identity.kind);
        if identity.namespace.is_none() && is_defined {
            object["metadata"]["namespace"] = namespace.into();
        }
    }
}
