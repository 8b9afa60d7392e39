//! The `CustomResourceDefinition`s that `deploy/crd` holds, made from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
    CustomResourceSubresources, CustomResourceValidation, JSON, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{CustomResourceExt as _, Resource};
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::{BareMetalHost, BareMetalHostSpec, BareMetalHostStatus, SIPCluster};

/// The definitions by file name: `SIPCluster`, and the project's own small `BareMetalHost` for places where metal3's
/// is not installed. Never apply the latter over metal3's.
///
/// # Errors
/// A schema that `JSONSchemaProps` cannot hold; a test of this crate shows that there is none.
pub fn custom_resource_definitions()
-> Result<[(&'static str, CustomResourceDefinition); 2], serde_json::Error> {
    Ok([
        ("airship.airshipit.org_sipclusters.yaml", sip_cluster()),
        ("metal3.io_baremetalhosts.yaml", bare_metal_host()?),
    ])
}

/// The definition as a YAML document that states its source.
///
/// # Errors
/// What the serializer reports.
pub fn to_yaml(definition: &CustomResourceDefinition) -> Result<String, serde_saphyr::ser_error::Error> {
    let body = serde_saphyr::to_string(definition)?;
    Ok(format!(
        "# Generated from agents/api by `cargo run -p sip-api --bin crds`; a test fails when they differ.\n---\n{body}"
    ))
}

fn sip_cluster() -> CustomResourceDefinition {
    let mut definition = SIPCluster::crd();
    for version in &mut definition.spec.versions {
        let root = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut());
        if let Some(root) = root {
            // SIP never required a spec. With the default the API server never serves an object without one, so the typed
            // lists of the agents stay readable.
            root.required = None;
            if let Some(spec) = root
                .properties
                .as_mut()
                .and_then(|properties| properties.get_mut("spec"))
            {
                spec.default = Some(JSON(serde_json::json!({})));
            }
        }
    }
    definition
}

fn bare_metal_host() -> Result<CustomResourceDefinition, serde_json::Error> {
    let mut root = JSONSchemaProps {
        description: Some(
            "A bare-metal host: the part of metal3's BareMetalHost that placement reads. Other fields are kept.".to_owned(),
        ),
        type_: Some("object".to_owned()),
        ..JSONSchemaProps::default()
    };
    root.properties = Some(
        [
            ("apiVersion".to_owned(), text()),
            ("kind".to_owned(), text()),
            ("metadata".to_owned(), object()),
            ("spec".to_owned(), open(schema_of::<BareMetalHostSpec>()?)),
            ("status".to_owned(), open(schema_of::<BareMetalHostStatus>()?)),
        ]
        .into(),
    );
    Ok(CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(format!(
                "{}.{}",
                BareMetalHost::plural(&()),
                BareMetalHost::group(&())
            )),
            ..ObjectMeta::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: BareMetalHost::group(&()).into_owned(),
            names: CustomResourceDefinitionNames {
                kind: BareMetalHost::kind(&()).into_owned(),
                plural: BareMetalHost::plural(&()).into_owned(),
                singular: Some("baremetalhost".to_owned()),
                short_names: Some(vec!["bmh".to_owned(), "bmhost".to_owned()]),
                ..CustomResourceDefinitionNames::default()
            },
            scope: "Namespaced".to_owned(),
            versions: vec![CustomResourceDefinitionVersion {
                name: BareMetalHost::version(&()).into_owned(),
                served: true,
                storage: true,
                schema: Some(CustomResourceValidation {
                    open_api_v3_schema: Some(root),
                }),
                subresources: Some(CustomResourceSubresources {
                    status: Some(CustomResourceSubresourceStatus(serde_json::json!({}))),
                    ..CustomResourceSubresources::default()
                }),
                additional_printer_columns: Some(vec![
                    column("Status", "string", ".status.operationalStatus"),
                    column("State", "string", ".status.provisioning.state"),
                    column("Consumer", "string", ".spec.consumerRef.name"),
                    column("Online", "boolean", ".spec.online"),
                    column("Error", "string", ".status.errorMessage"),
                    column("Age", "date", ".metadata.creationTimestamp"),
                ]),
                ..CustomResourceDefinitionVersion::default()
            }],
            ..CustomResourceDefinitionSpec::default()
        },
        status: None,
    })
}

fn column(name: &str, type_: &str, json_path: &str) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: json_path.to_owned(),
        ..Default::default()
    }
}

fn text() -> JSONSchemaProps {
    JSONSchemaProps {
        type_: Some("string".to_owned()),
        ..JSONSchemaProps::default()
    }
}

fn object() -> JSONSchemaProps {
    JSONSchemaProps {
        type_: Some("object".to_owned()),
        ..JSONSchemaProps::default()
    }
}

/// Keeps what the schema does not name: metal3 has many more fields than placement reads.
fn open(mut schema: JSONSchemaProps) -> JSONSchemaProps {
    // The API server wants these at the top of a document only.
    schema.schema = None;
    schema.title = None;
    schema.x_kubernetes_preserve_unknown_fields = Some(true);
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|properties| properties.values_mut())
    {
        if property.type_.as_deref() == Some("object") {
            property.x_kubernetes_preserve_unknown_fields = Some(true);
        }
    }
    schema
}

fn schema_of<T: schemars::JsonSchema>() -> Result<JSONSchemaProps, serde_json::Error> {
    let schema = schemars::generate::SchemaSettings::openapi3()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(kube::core::schema::StructuralSchemaRewriter)
        .into_generator()
        .into_root_schema_for::<T>();
    serde_json::from_value(schema.to_value())
}

/// An object of which nothing is known.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

#[cfg(test)]
mod tests;
