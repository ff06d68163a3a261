#include "tokenizer/post_processor.h"

#include <limits>
#include <string>

namespace focus {

namespace {

int32_t read_id(const JsonNode& node) {
  const nlohmann::json& value = node.value();
  require(value.is_number_integer() && value.get<int64_t>() >= 0 &&
              value.get<int64_t>() <= std::numeric_limits<int32_t>::max(),
          "{}: expected a token id", node.where());
  return value.get<int32_t>();
}

SpecialTokens read_template(const JsonNode& node) {
  SpecialTokens special;
  bool seen_text = false;
  for (const JsonNode& part : node.items("single")) {
    if (const std::optional<JsonNode> text = part.find("Sequence")) {
      require(text->text("id") == "A" && !seen_text, "{}: a template for one text must have the sequence A once",
              part.where());
      seen_text = true;
      continue;
    }
    const std::string name = part.child("SpecialToken").text("id");
    const JsonNode token = node.child("special_tokens").child(name);
    for (const JsonNode& id : token.items("ids")) {
      (seen_text ? special.after : special.before).push_back(read_id(id));
    }
  }
  require(seen_text, "{}: a template for one text must have the sequence A once", node.where());
  return special;
}

// A field of the form ["</s>", 2].
int32_t read_token_pair(const JsonNode& node, const std::string& key) {
  const std::vector<JsonNode> pair = node.items(key);
  require(pair.size() == 2, "{}.{}: expected [token, id]", node.where(), key);
  return read_id(pair[1]);
}

}  // namespace

SpecialTokens read_post_processor(const JsonNode& node) {
  const std::string type = node.type();
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return read_template(node);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    return {{read_token_pair(node, "cls")}, {read_token_pair(node, "sep")}};
  }
  if (type == "Sequence") {
    SpecialTokens all;
    for (const JsonNode& part : node.items("processors")) {
      const SpecialTokens special = read_post_processor(part);
      all.before.insert(all.before.begin(), special.before.begin(), special.before.end());
      all.after.insert(all.after.end(), special.after.begin(), special.after.end());
    }
    return all;
  }
  node.fail_type("a post-processor", type,
                 "Sequence, TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing");
}

}  // namespace focus
