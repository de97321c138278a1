package fidelity

import "slices"

// Questions are all that are asked.
func Questions() []Question {
	return slices.Concat(
		area("List", lists),
		area("Watch", watches),
		area("Create", creates),
		area("Update", updates),
		area("Patch", patches),
		area("Server-side apply", applies),
		area("Delete", deletes),
		area("Subresources", subresources),
		area("Custom resources", customs),
		area("Field validation", validations),
		area("Tables and metadata", tables),
		area("Encodings", encodings),
		area("Errors", failures),
		area("Discovery", discoveries),
		area("What a cluster does beside", beside),
	)
}

func area(name string, questions []Question) []Question {
	for i := range questions {
		questions[i].Area = name
	}
	return questions
}
