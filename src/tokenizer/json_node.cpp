#include "tokenizer/json_node.h"

namespace focus {

std::optional<JsonNode> JsonNode::find(const std::string& key) const {
  require(value_->is_object(), "{}: expected an object, found {}", where_, value_->type_name());
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonNode(*found, where_ + separator_ + key, ".");
}

JsonNode JsonNode::child(const std::string& key) const {
  std::optional<JsonNode> found = find(key);
  require(found.has_value(), "{}: field '{}' is missing", where_, key);
  return *found;
}

std::vector<JsonNode> JsonNode::items(const std::string& key) const {
  const JsonNode list = child(key);
  require(list.value().is_array(), "{}: expected an array, found {}", list.where(), list.value().type_name());
  std::vector<JsonNode> nodes;
  for (const nlohmann::json& element : list.value()) {
    nodes.push_back(JsonNode(element, fmt::format("{}[{}]", list.where(), nodes.size()), "."));
  }
  return nodes;
}

std::string JsonNode::text(const std::string& key) const {
  const JsonNode node = child(key);
  require(node.value().is_string(), "{}: expected a string, found {}", node.where(), node.value().type_name());
  return node.value().get<std::string>();
}

bool JsonNode::flag(const std::string& key, bool otherwise) const {
  const std::optional<JsonNode> node = find(key);
  if (!node) return otherwise;
  require(node->value().is_boolean(), "{}: expected true or false, found {}", node->where(), node->value().type_name());
  return node->value().get<bool>();
}

int64_t JsonNode::integer(const std::string& key) const {
  const JsonNode node = child(key);
  require(node.value().is_number_integer(), "{}: expected an integer, found {}", node.where(),
          node.value().type_name());
  return node.value().get<int64_t>();
}

void JsonNode::fail_type(const std::string& what, const std::string& type, const std::string& known) const {
  fail("{}: {} of type '{}' is not supported (known: {})", where_, what, type, known);
}

}  // namespace focus
