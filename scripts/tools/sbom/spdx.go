package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// goToolchain is the name of the standard library and the runtime, as vulnerability databases have it.
const goToolchain = "stdlib"

// binary is a program and what it is made of.
type binary struct {
	name    string
	sha256  string
	modules []component // in the order of their paths, first the standard library
}

type component struct {
	path, version string
	sum           string // h1: sum of go.sum; empty for the standard library
	licence       string
}

func readBinary(path string) (binary, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return binary{}, err
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return binary{}, fmt.Errorf("%s: %w", path, err)
	}
	sum := sha256.Sum256(data)
	b := binary{
		name: filepath.Base(path), sha256: hex.EncodeToString(sum[:]),
		modules: []component{{path: goToolchain, version: strings.TrimPrefix(info.GoVersion, "go")}},
	}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		b.modules = append(b.modules, component{path: d.Path, version: d.Version, sum: d.Sum})
	}
	return b, nil
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// id returns the identifier of a module in the document.
func (m component) id() common.ElementID {
	return common.ElementID("Package-" + notInID.ReplaceAllString(m.path+"-"+m.version, "-"))
}

func (m component) spdx() (*spdx.Package, error) {
	p := &spdx.Package{
		PackageName: m.path, PackageSPDXIdentifier: m.id(), PackageVersion: m.version,
		PackageDownloadLocation: "https://proxy.golang.org/" + m.path + "/@v/" + m.version + ".zip",
		PackageLicenseConcluded: m.licence, PackageLicenseDeclared: m.licence, PackageCopyrightText: "NOASSERTION",
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL,
			Locator: "pkg:golang/" + m.path + "@" + m.version,
		}},
	}
	if m.path == goToolchain {
		p.PackageDownloadLocation = "https://go.dev/dl/go" + m.version + ".src.tar.gz"
		return p, nil
	}
	// The sum is of a list of files and their sums (golang.org/x/mod/sumdb/dirhash), so it is no checksum
	// of the download.
	if _, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.sum, "h1:")); err != nil || m.sum == "" {
		return nil, fmt.Errorf("%s %s: sum %q", m.path, m.version, m.sum)
	}
	p.PackageComment = "go.sum " + m.sum
	return p, nil
}

// writeSPDX writes the document. Its time is the epoch, so that the same binary gives the same file.
func writeSPDX(path string, b binary) error {
	root := common.ElementID("Binary")
	doc := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: b.name, DocumentNamespace: "urn:sha256:" + b.sha256,
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "watchlab-sbom"}},
			Created:  time.Unix(0, 0).UTC().Format(time.RFC3339),
		},
		Packages: []*spdx.Package{{
			PackageName: b.name, PackageSPDXIdentifier: root, PackageDownloadLocation: "NOASSERTION",
			PackageChecksums:        []common.Checksum{{Algorithm: common.SHA256, Value: b.sha256}},
			PackageLicenseConcluded: "Apache-2.0", PackageLicenseDeclared: "Apache-2.0", PackageCopyrightText: "NOASSERTION",
			PrimaryPackagePurpose: "APPLICATION",
		}},
		Relationships: []*spdx.Relationship{{
			RefA: common.MakeDocElementID("", "DOCUMENT"), RefB: common.MakeDocElementID("", string(root)), Relationship: common.TypeRelationshipDescribe,
		}},
	}
	for _, m := range b.modules {
		p, err := m.spdx()
		if err != nil {
			return err
		}
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, &spdx.Relationship{
			RefA: common.MakeDocElementID("", string(root)), RefB: common.MakeDocElementID("", string(m.id())), Relationship: common.TypeRelationshipContains,
		})
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := spdxjson.Write(doc, f, spdxjson.Indent(" ")); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
