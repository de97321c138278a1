package dashboards

import "embed"

// Manifests are the dashboards and rules as kustomize takes them, with the
// kustomization.yaml that makes ConfigMaps of them. An overlay in scripts/deploy
// stands on them.
//
//go:embed kustomization.yaml json rules
var Manifests embed.FS
