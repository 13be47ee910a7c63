import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.fileindex.FileIndexFormat;
import org.apache.paimon.fileindex.FileIndexPredicate;
import org.apache.paimon.fileindex.FileIndexResult;
import org.apache.paimon.fileindex.FileIndexWriter;
import org.apache.paimon.fileindex.FileIndexer;
import org.apache.paimon.fileindex.bitmap.BitmapIndexResult;
import org.apache.paimon.options.Options;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.DecimalType;
import org.apache.paimon.types.RowType;

/**
 * Paimon's own classes over containers: one case per line of standard input, one answer per line.
 *
 * A case has a schema, the columns' values, the indexes to build and queries. With "index_hex" the
 * queries are asked of that container, else of the one that Paimon builds, which is printed.
 */
public final class PaimonIndexes {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final HexFormat HEX = HexFormat.of();

  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      out.println(JSON.writeValueAsString(answered(JSON.readTree(line))));
    }
    out.flush();
  }

  private static ObjectNode answered(JsonNode given) throws Exception {
    List<DataField> fields = new ArrayList<>();
    for (JsonNode each : given.get("schema")) {
      DataType type = DataTypeJsonParser.parseAtomicTypeSQLString(each.get("type").asText());
      fields.add(new DataField(fields.size(), each.get("name").asText(), type));
    }
    RowType schema = new RowType(fields);
    byte[] index =
        given.has("index_hex") ? HEX.parseHex(given.get("index_hex").asText()) : built(given, schema);
    ObjectNode answer = JSON.createObjectNode();
    answer.put("index_hex", HEX.formatHex(index));
    ArrayNode answers = answer.putArray("answers");
    for (JsonNode query : given.get("queries")) {
      try (FileIndexPredicate asked = new FileIndexPredicate(index, schema)) {
        add(answers, asked.evaluate(predicate(query, schema)));
      } catch (RuntimeException error) {
        answers.add("error: " + error);
      }
    }
    return answer;
  }

  private static void add(ArrayNode answers, FileIndexResult result) {
    if (result instanceof BitmapIndexResult) {
      ArrayNode rows = answers.addArray();
      Iterable<Integer> found = ((BitmapIndexResult) result).get()::iterator;
      for (int row : found) {
        rows.add(row);
      }
    } else {
      answers.add(result.remain() ? "REMAIN" : "SKIP");
    }
  }

  private static byte[] built(JsonNode given, RowType schema) throws Exception {
    Map<String, Map<String, byte[]>> blobs = new LinkedHashMap<>();
    for (JsonNode each : given.get("indexes")) {
      String column = each.get("column").asText();
      String kind = each.get("kind").asText();
      DataType type = schema.getField(column).type();
      Options options = new Options();
      each.get("options")
          .fields()
          .forEachRemaining(option -> options.set(option.getKey(), option.getValue().asText()));
      FileIndexWriter writer = FileIndexer.create(kind, type, options).createWriter();
      for (JsonNode value : given.get("columns").get(column)) {
        writer.writeRecord(value(type, value));
      }
      byte[] blob = writer.empty() ? null : writer.serializedBytes();
      blobs.computeIfAbsent(column, name -> new LinkedHashMap<>()).put(kind, blob);
    }
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (FileIndexFormat.Writer writer = FileIndexFormat.createWriter(bytes)) {
      writer.writeColumnIndexes(blobs);
    }
    return bytes.toByteArray();
  }

  private static Predicate predicate(JsonNode query, RowType schema) {
    String op = query.get("op").asText();
    if (op.equals("and") || op.equals("or")) {
      List<Predicate> parts = new ArrayList<>();
      for (JsonNode part : query.get("children")) {
        parts.add(predicate(part, schema));
      }
      return op.equals("and") ? PredicateBuilder.and(parts) : PredicateBuilder.or(parts);
    }
    PredicateBuilder builder = new PredicateBuilder(schema);
    int field = schema.getFieldIndex(query.get("field").asText());
    DataType type = schema.getTypeAt(field);
    List<Object> values = new ArrayList<>();
    for (JsonNode value : query.path("values")) {
      values.add(value(type, value));
    }
    Object first = query.has("value") ? value(type, query.get("value")) : null;
    switch (op) {
      case "eq":
        return builder.equal(field, first);
      case "ne":
        return builder.notEqual(field, first);
      case "lt":
        return builder.lessThan(field, first);
      case "le":
        return builder.lessOrEqual(field, first);
      case "gt":
        return builder.greaterThan(field, first);
      case "ge":
        return builder.greaterOrEqual(field, first);
      case "in":
        return builder.in(field, values);
      case "not_in":
        return builder.notIn(field, values);
      case "between":
        return builder.between(field, values.get(0), values.get(1));
      case "is_null":
        return builder.isNull(field);
      case "is_not_null":
        return builder.isNotNull(field);
      case "starts_with":
        return builder.startsWith(field, first);
      default:
        throw new IllegalArgumentException(op);
    }
  }

  private static Object value(DataType type, JsonNode value) {
    if (value.isNull()) {
      return null;
    }
    switch (type.getTypeRoot()) {
      case BOOLEAN:
        return value.asBoolean();
      case TINYINT:
        return (byte) value.asInt();
      case SMALLINT:
        return (short) value.asInt();
      case INTEGER:
      case DATE:
      case TIME_WITHOUT_TIME_ZONE:
        return value.asInt();
      case BIGINT:
        return value.asLong();
      case FLOAT:
        return Float.parseFloat(value.asText());
      case DOUBLE:
        return Double.parseDouble(value.asText());
      case DECIMAL:
        DecimalType decimal = (DecimalType) type;
        return Decimal.fromBigDecimal(
            new BigDecimal(value.asText()), decimal.getPrecision(), decimal.getScale());
      case TIMESTAMP_WITHOUT_TIME_ZONE:
      case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
        return Timestamp.fromEpochMillis(value.get(0).asLong(), value.get(1).asInt());
      case CHAR:
      case VARCHAR:
        return BinaryString.fromString(value.asText());
      case BINARY:
      case VARBINARY:
        return HEX.parseHex(value.asText());
      default:
        throw new IllegalArgumentException(type.toString());
    }
  }
}
