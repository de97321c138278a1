package bench_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/storm"
)

// customs is a storm of 200 custom resources of some 8 kB of JSON, such as a database operator's: an
// operator updates the conditions and the members of their status, and one update in twenty is of
// their spec.
func customs() (*storm.Storm, error) {
	const objects, updates = 200, 29
	s := &storm.Storm{
		Name: "custom", Resource: schema.GroupVersionResource{Group: "db.example.com", Version: "v1", Resource: "clusters"},
		Kind: schema.GroupVersionKind{Group: "db.example.com", Version: "v1", Kind: "Cluster"}, Keys: objects, Initial: objects,
	}
	r := rand.New(rand.NewPCG(1, 2))
	generations, flips := make([]int, objects), make([]int, objects)
	for n := range objects * (1 + updates) {
		i, typ := n, watch.Added
		if n >= objects {
			i, typ = r.IntN(objects), watch.Modified
			if r.IntN(20) == 0 {
				generations[i]++
			} else {
				flips[i]++
			}
		}
		s.Events = append(s.Events, storm.Event{
			Type: typ, Seq: uint64(n + 1), Key: fmt.Sprintf("team-%d/db-%d", i%20, i), KeyIndex: int32(i),
			Object: custom(i, generations[i], flips[i], n),
		})
	}
	return s, nil
}

// custom returns the i-th object after so many changes of its spec and of its status. The object is
// like those of a CustomResourceDefinition: all of it is strings, numbers, lists and maps.
func custom(i, generation, flip, version int) *unstructured.Unstructured {
	type m = map[string]any
	type l = []any
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	at := func(n int) string { return start.Add(time.Duration(n) * time.Second).Format(time.RFC3339) }
	name, namespace := fmt.Sprint("db-", i), fmt.Sprintf("team-%d", i%20)

	var members, pools, parameters, conditions l
	for j := range 5 {
		ready := (flip+j)%5 != 0
		members = append(members, m{
			"name": fmt.Sprintf("%s-%d", name, j), "zone": fmt.Sprintf("zone-%d", j%3), "ready": ready, "restarts": int64(j),
			"endpoint": fmt.Sprintf("%s-%d.%s.svc.cluster.local:5432", name, j, namespace),
			"lag":      m{"bytes": int64(4096 * j), "seconds": float64((flip+j)%4) / 4},
			"volume":   m{"claim": fmt.Sprintf("data-%s-%d", name, j), "capacity": "100Gi", "phase": "Bound"},
		})
	}
	for _, pool := range []string{"primary", "replicas", "analytics"} {
		pools = append(pools, m{
			"name": pool, "size": int64(2 + generation%3), "image": "registry.example.com/db/postgres:17.2-3",
			"resources": m{"requests": m{"cpu": "2", "memory": "8Gi"}, "limits": m{"cpu": "4", "memory": "8Gi"}},
			"storage":   m{"class": "fast-ssd", "size": "100Gi", "resizePolicy": "Online"},
			"affinity": m{"podAntiAffinity": m{"requiredDuringSchedulingIgnoredDuringExecution": l{m{
				"labelSelector": m{"matchLabels": m{"db.example.com/cluster": name, "db.example.com/pool": pool}}, "topologyKey": "topology.kubernetes.io/zone",
			}}}},
			"tolerations": l{m{"key": "dedicated", "operator": "Equal", "value": "database", "effect": "NoSchedule"}},
		})
	}
	for _, p := range []string{"shared_buffers", "work_mem", "max_connections", "wal_level", "checkpoint_timeout", "effective_cache_size", "random_page_cost"} {
		parameters = append(parameters, m{"name": p, "value": "as-the-size-needs", "restart": p == "wal_level"})
	}
	for j, typ := range []string{"Ready", "Progressing", "Degraded", "BackupSucceeded", "ReplicationHealthy", "CertificateValid"} {
		changed := 0
		if j == flip%6 {
			changed = flip
		}
		conditions = append(conditions, m{
			"type": typ, "status": []string{"True", "False"}[changed%2], "observedGeneration": int64(generation + 1),
			"lastTransitionTime": at(changed), "reason": typ + "Checked", "message": fmt.Sprintf("the operator has checked %s of the cluster", typ),
		})
	}
	managed := func(manager, subresource string, fields m, seconds int) m {
		return m{
			"manager": manager, "operation": "Update", "apiVersion": "db.example.com/v1", "time": at(seconds), "fieldsType": "FieldsV1",
			"subresource": subresource, "fieldsV1": fields,
		}
	}
	owned := func(list l, key string) m {
		all := m{}
		for _, item := range list {
			fields := m{".": m{}}
			for k := range item.(m) {
				fields["f:"+k] = m{}
			}
			all[fmt.Sprintf("k:{%q:%q}", key, item.(m)[key])] = fields
		}
		return all
	}
	return &unstructured.Unstructured{Object: m{
		"apiVersion": "db.example.com/v1", "kind": "Cluster",
		"metadata": m{
			"name": name, "namespace": namespace, "uid": fmt.Sprintf("7d1f9c52-0000-4000-8000-%012d", i),
			"resourceVersion": fmt.Sprint(100_000 + version), "generation": int64(generation + 1), "creationTimestamp": at(i),
			"labels":      m{"app.kubernetes.io/name": "postgres", "app.kubernetes.io/managed-by": "db-operator", "db.example.com/tier": "gold"},
			"annotations": m{"db.example.com/owner": namespace + "@example.com", "db.example.com/ticket": fmt.Sprint("OPS-", 1000+i)},
			"finalizers":  l{"db.example.com/backup"},
			"managedFields": l{
				managed("kubectl", "", m{"f:metadata": m{"f:labels": m{".": m{}, "f:db.example.com/tier": m{}}}, "f:spec": m{
					"f:pools": owned(pools, "name"), "f:parameters": owned(parameters, "name"), "f:backup": m{".": m{}, "f:schedule": m{}, "f:retention": m{}},
				}}, generation),
				managed("db-operator", "status", m{"f:status": m{
					".": m{}, "f:conditions": owned(conditions, "type"), "f:members": owned(members, "name"), "f:phase": m{}, "f:primary": m{},
				}}, flip),
			},
		},
		"spec": m{
			"version": "17.2", "pools": pools, "parameters": parameters, "generation": int64(generation),
			"backup": m{"schedule": "0 3 * * *", "retention": "14d", "bucket": "s3://backups/" + name, "encryption": m{"keySecret": name + "-key", "algorithm": "aes-256"}},
			"tls":    m{"issuer": "internal-ca", "secret": name + "-tls", "hosts": l{name + "." + namespace, name + "-ro." + namespace}},
		},
		"status": m{
			"phase": "Running", "primary": fmt.Sprintf("%s-%d", name, flip%5), "observedGeneration": int64(generation + 1),
			"conditions": conditions, "members": members, "lastCheck": at(version), "connections": m{"active": int64(version % 97), "idle": int64(40)},
		},
	}}
}
