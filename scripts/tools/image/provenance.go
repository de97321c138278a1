package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// buildType says that the parameters below are those of make image.
const buildType = "urn:watchlab:make-image:v1"

// provenanceOf returns an in-toto statement with SLSA provenance v1 of an image: its digest, the
// commit, the binaries and how each was built. Nobody signs it: who signs releases signs this file.
func provenanceOf(ref name.Tag, digest v1.Hash, what program, binaries []binary) ([]byte, error) {
	platforms := map[string]any{}
	var from []*intoto.ResourceDescriptor
	if what.revision != "" {
		from = append(from, &intoto.ResourceDescriptor{Name: "source", Digest: map[string]string{"gitCommit": what.revision}})
	}
	for _, b := range binaries {
		data, err := os.ReadFile(b.path)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		from = append(from, &intoto.ResourceDescriptor{
			Name: what.command + " " + b.platform.String(), Digest: map[string]string{"sha256": hex.EncodeToString(sum[:])},
		})
		settings := map[string]any{}
		// A binary that is not Go's has no settings.
		if info, err := buildinfo.Read(bytes.NewReader(data)); err == nil {
			settings["go"] = info.GoVersion
			for _, s := range info.Settings {
				settings[s.Key] = s.Value
			}
		}
		platforms[b.platform.String()] = settings
	}
	parameters, err := structpb.NewStruct(map[string]any{"image": ref.Name(), "platforms": platforms})
	if err != nil {
		return nil, err
	}
	predicate, err := asStruct(&provenance.Provenance{
		BuildDefinition: &provenance.BuildDefinition{BuildType: buildType, ExternalParameters: parameters, ResolvedDependencies: from},
		RunDetails:      &provenance.RunDetails{Builder: &provenance.Builder{Id: "urn:watchlab:local"}},
	})
	if err != nil {
		return nil, err
	}
	statement := &intoto.Statement{
		Type: intoto.StatementTypeUri, PredicateType: "https://slsa.dev/provenance/v1", Predicate: predicate,
		Subject: []*intoto.ResourceDescriptor{{Name: imageName(ref), Digest: map[string]string{digest.Algorithm: digest.Hex}}},
	}
	if err := statement.Validate(); err != nil {
		return nil, fmt.Errorf("provenance: %w", err)
	}
	return stable(statement)
}

func asStruct(m proto.Message) (*structpb.Struct, error) {
	text, err := stable(m)
	if err != nil {
		return nil, err
	}
	var s structpb.Struct
	return &s, protojson.Unmarshal(text, &s)
}

// stable returns a message as JSON. protojson alone varies its spaces, so that nobody relies on them.
func stable(m proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}
