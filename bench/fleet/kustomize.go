package fleet

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"watchlab/loadgen/manifest"
)

// kustomization has the fields of a kustomization.yaml that the manifests of this tree use. Other
// fields are errors. kustomize itself is 74 packages.
type kustomization struct {
	metav1.TypeMeta    `json:",inline"`
	Resources          []string         `json:"resources"`
	Patches            []kustomizePatch `json:"patches"`
	ConfigMapGenerator []struct {
		Name      string   `json:"name"`
		Namespace string   `json:"namespace"`
		Files     []string `json:"files"`
	} `json:"configMapGenerator"`
	GeneratorOptions struct {
		Labels map[string]string `json:"labels"`
	} `json:"generatorOptions"`
}

// kustomizePatch is a JSON patch, or strategic merge patches, of a file or the text Patch.
type kustomizePatch struct {
	Path   string `json:"path"`
	Patch  string `json:"patch"`
	Target *struct {
		Kind          string `json:"kind"` // Kind and Name are regular expressions; empty for any.
		Name          string `json:"name"`
		LabelSelector string `json:"labelSelector"`
	} `json:"target"`
}

// kustomizer builds the objects of folders with a kustomization.yaml.
type kustomizer struct {
	files   map[string][]byte // by path
	objects []*unstructured.Unstructured
	names   map[string]string // of generated ConfigMaps, by that in the kustomization
}

const (
	maxOverlay = 16 << 20 // bytes of a user's overlay, in case of a wrong directory
	maxNested  = 20       // folders, in case of one that refers to itself
)

// load adds the files of a folder under the path dir.
func (k *kustomizer) load(files fs.FS, dir string) error {
	size := 0
	return fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if size += len(data); size > maxOverlay {
			return errors.New("more than 16 MiB of files")
		}
		k.files[path.Join(dir, name)] = data
		return nil
	})
}

// add adds the objects of a folder, and then applies its patches to all objects.
func (k *kustomizer) add(dir string, depth int) error {
	file := path.Join(dir, kustomizationFile)
	data, ok := k.files[file]
	switch {
	case !ok:
		return fmt.Errorf("%s is missing", file)
	case depth > maxNested:
		return fmt.Errorf("%s: folders refer to each other", file)
	}
	var own kustomization
	if err := manifest.Strict(file, data, &own); err != nil {
		return fmt.Errorf("%w (kubectl kustomize builds what uses other fields: list its output in resources)", err)
	}
	for _, name := range own.Resources {
		p := path.Join(dir, name)
		if _, isFile := k.files[p]; !isFile {
			if err := k.add(p, depth+1); err != nil {
				return err
			}
			continue
		}
		if err := k.addFile(p); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	for _, g := range own.ConfigMapGenerator {
		content := map[string]any{}
		for _, name := range g.Files {
			data, ok := k.files[path.Join(dir, name)]
			if !ok {
				return fmt.Errorf("%s: %s is missing", file, name)
			}
			content[path.Base(name)] = string(data)
		}
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": content}}
		// The name has a checksum, so that changed data restarts the pods.
		k.names[g.Name] = fmt.Sprintf("%s-%.5x", g.Name, sha256.Sum256(fmt.Append(nil, content)))
		u.SetName(k.names[g.Name])
		u.SetNamespace(g.Namespace)
		u.SetLabels(own.GeneratorOptions.Labels)
		k.objects = append(k.objects, u)
	}
	for _, p := range own.Patches {
		text := []byte(p.Patch)
		if p.Path != "" {
			text = k.files[path.Join(dir, p.Path)]
		}
		if err := k.patch(p, text); err != nil || len(text) == 0 {
			return fmt.Errorf("%s: patch %s: %w", file, p.Path, cmp.Or(err, fs.ErrNotExist))
		}
	}
	return nil
}

// documents returns the documents of a file in YAML or JSON.
func documents(data []byte) (all []any, err error) {
	if err := manifest.CheckAliases(data); err != nil {
		return nil, err
	}
	in := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var raw runtime.RawExtension
		if err := in.Decode(&raw); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		var v any
		if len(raw.Raw) > 0 { // not only comments
			err = utiljson.Unmarshal(raw.Raw, &v)
		}
		if err != nil {
			return nil, err
		}
		if v != nil {
			all = append(all, v)
		}
	}
}

func (k *kustomizer) addFile(name string) error {
	docs, err := documents(k.files[name])
	if err != nil {
		return err
	}
	for _, doc := range docs {
		content, _ := doc.(map[string]any)
		u := &unstructured.Unstructured{Object: content}
		switch {
		case u.GetKind() == "" || u.GetAPIVersion() == "" || u.GetName() == "":
			return errors.New("an object has no kind, apiVersion or name")
		case slices.ContainsFunc(k.objects, func(o *unstructured.Unstructured) bool { return same(o, u) }):
			return fmt.Errorf("%s %s exists already", u.GetKind(), u.GetName())
		}
		k.objects = append(k.objects, u)
	}
	return nil
}

// same reports whether two objects have the same kind, namespace and name.
func same(a, b *unstructured.Unstructured) bool {
	return a.GroupVersionKind().GroupKind() == b.GroupVersionKind().GroupKind() && a.GetNamespace() == b.GetNamespace() && a.GetName() == b.GetName()
}

// refer sets the names of generated ConfigMaps in the references of an object's pods.
func (k *kustomizer) refer(v any) {
	switch v := v.(type) {
	case []any:
		for _, inner := range v {
			k.refer(inner)
		}
	case map[string]any:
		for key, inner := range v {
			if ref, ok := inner.(map[string]any); ok && strings.HasPrefix(key, "configMap") {
				if name, ok := ref["name"].(string); ok {
					ref["name"] = cmp.Or(k.names[name], name)
				}
			}
			k.refer(inner)
		}
	}
}

// patch applies a patch to the objects that it names.
func (k *kustomizer) patch(p kustomizePatch, text []byte) error {
	docs, err := documents(text)
	if err != nil {
		return err
	}
	for _, doc := range docs {
		found := false
		var kept []*unstructured.Unstructured
		for _, u := range k.objects {
			if match, err := p.matches(doc, u); err != nil {
				return err
			} else if match {
				found = true
				if u, err = patched(u, doc); err != nil {
					return err
				}
			}
			if len(u.Object) > 0 { // $patch: delete
				kept = append(kept, u)
			}
		}
		if !found && p.Target == nil {
			return errors.New("a patch matches no object")
		}
		k.objects = kept
	}
	return nil
}

// matches reports whether a document of the patch is for an object.
func (p kustomizePatch) matches(doc any, u *unstructured.Unstructured) (bool, error) {
	if p.Target == nil {
		content, _ := doc.(map[string]any)
		return same(u, &unstructured.Unstructured{Object: content}), nil
	}
	kind, kindErr := regexp.MatchString("^(?:"+cmp.Or(p.Target.Kind, ".*")+")$", u.GetKind())
	name, nameErr := regexp.MatchString("^(?:"+cmp.Or(p.Target.Name, ".*")+")$", u.GetName())
	selector, err := labels.Parse(p.Target.LabelSelector)
	if err := errors.Join(kindErr, nameErr, err); err != nil {
		return false, fmt.Errorf("target: %w", err)
	}
	return kind && name && selector.Matches(labels.Set(u.GetLabels())), nil
}

// patched returns the patched object; without content if the patch deletes it.
func patched(u *unstructured.Unstructured, doc any) (*unstructured.Unstructured, error) {
	if patch, ok := doc.(map[string]any); ok {
		o, err := scheme.Scheme.New(u.GroupVersionKind())
		if err != nil {
			return nil, err
		}
		merged, err := strategicpatch.StrategicMergeMapPatch(u.Object, runtime.DeepCopyJSON(patch), o)
		return &unstructured.Unstructured{Object: merged}, err
	}
	text, textErr := json.Marshal(doc)
	data, err := u.MarshalJSON()
	patch, patchErr := jsonpatch.DecodePatch(text)
	if err := errors.Join(textErr, err, patchErr); err != nil {
		return nil, err
	}
	if data, err = patch.Apply(data); err != nil {
		return nil, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	out := &unstructured.Unstructured{}
	return out, out.UnmarshalJSON(data)
}
